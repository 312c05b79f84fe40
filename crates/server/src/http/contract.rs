//! The published contract. It is made from the handlers, and the guard reads from it which scope a route
//! needs: what is documented is what is enforced.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension,
    http::{Method, header},
    response::{IntoResponse, Response},
};
use tenure_api::wire::{self, Scope};
use utoipa::{
    OpenApi,
    openapi::{
        self,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::error::Problems;

/// What a route asks of whoever calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Public,
    /// Any genuine token; what it carries is checked piece by piece.
    Token,
    Needs(Scope),
}

/// The contract as text, and as the guard's table.
pub(crate) struct Contract {
    pub text: String,
    access: HashMap<String, HashMap<Method, Access>>,
}

impl Contract {
    pub fn new(openapi: openapi::OpenApi) -> Self {
        let text = openapi.to_pretty_json().expect("a contract is plain JSON");
        let document: serde_json::Value = serde_json::from_str(&text).expect("a contract is JSON");
        let mut access: HashMap<String, HashMap<Method, Access>> = HashMap::new();
        for (path, item) in document["paths"].as_object().expect("a contract has paths") {
            for (method, operation) in item.as_object().expect("a path has methods") {
                let Ok(method) = method.to_uppercase().parse() else { continue };
                if let Some(of) = access_of(operation) {
                    access.entry(path.clone()).or_default().insert(method, of);
                }
            }
        }
        Self { text, access }
    }

    /// None: no route says so, and nobody gets in.
    pub fn access(&self, method: &Method, path: &str) -> Option<Access> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.access.get(path)?.get(method).copied()
    }
}

fn access_of(operation: &serde_json::Value) -> Option<Access> {
    let requirement = operation["security"].as_array()?.first()?.as_object()?;
    let Some(scopes) = requirement.get("token") else { return Some(Access::Public) };
    match scopes.as_array()?.first() {
        None => Some(Access::Token),
        Some(scope) => Some(Access::Needs(scope.as_str()?.parse().ok()?)),
    }
}

/// What the document says besides its paths.
pub(crate) fn base() -> openapi::OpenApi {
    #[derive(OpenApi)]
    #[openapi(
        info(
            title = "Tenure",
            description = "The work ledger for AI agent runtimes. A 2xx means committed durably. Every refusal is \
                           a problem (RFC 9457) with a stable `code`, `retryable`, and what to do.",
            license(name = "MIT OR Apache-2.0")
        ),
        components(schemas(wire::Problem, wire::Until))
    )]
    struct Base;
    let mut openapi = Base::openapi();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A credential's secret. Each route names the scope that it needs."))
        .build();
    let components = openapi.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    openapi
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "health", security(()),
    responses((status = 200, description = "The contract.", content_type = "application/json", body = serde_json::Value), Problems))]
pub(crate) async fn openapi(Extension(contract): Extension<Arc<Contract>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], contract.text.clone()).into_response()
}

/// The contract for people, with nothing from elsewhere.
#[utoipa::path(get, path = "/docs", tag = "health", security(()),
    responses((status = 200, description = "A page.", content_type = "text/html", body = String), Problems))]
pub(crate) async fn page() -> Response {
    const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'";
    let headers =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, POLICY)];
    (headers, include_str!("docs/page.html")).into_response()
}

/// The page's script.
#[utoipa::path(get, path = "/docs/page.js", tag = "health", security(()),
    responses((status = 200, description = "A script.", content_type = "text/javascript", body = String), Problems))]
pub(crate) async fn script() -> Response {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("docs/page.js")).into_response()
}

/// The page's style.
#[utoipa::path(get, path = "/docs/page.css", tag = "health", security(()),
    responses((status = 200, description = "A style sheet.", content_type = "text/css", body = String), Problems))]
pub(crate) async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("docs/page.css")).into_response()
}
