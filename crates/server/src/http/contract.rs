//! The published contract. It is made from the handlers, and the guard reads from it which scope a route
//! needs: what is documented is what is enforced.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension,
    body::Bytes,
    http::{Method, header},
    response::{IntoResponse, Response},
};
use tenure_api::wire::{self, Scope};
use utoipa::{
    OpenApi,
    openapi::{
        self, ObjectBuilder, Required, Type,
        path::{ParameterBuilder, ParameterIn},
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::error::Problems;

/// The query parameter by which a caller only asks what would happen.
pub(crate) const DRY_RUN: &str = "dry_run";
/// How an operation says in the contract that it cannot tell.
const NO_DRY_RUN: &str = "x-no-dry-run";

/// What a route asks of whoever calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Public,
    /// Any genuine token; what it carries is checked piece by piece.
    Token,
    Needs(Scope),
}

/// What the guard reads of a route.
#[derive(Debug)]
pub(crate) struct Rule {
    pub access: Access,
    /// Whether it can be asked what it would do.
    pub dry_run: bool,
    /// Whether it tells works of one kind from those of another: only then is it for tokens that are bound to kinds.
    pub by_kind: bool,
    /// The query parameters that it takes.
    pub parameters: Vec<String>,
}

/// The contract as text, and as the guard's table.
pub(crate) struct Contract {
    /// Shared by all who read it.
    pub text: Bytes,
    rules: HashMap<String, HashMap<Method, Rule>>,
}

impl Contract {
    pub fn new(mut openapi: openapi::OpenApi) -> Self {
        offer_dry_runs(&mut openapi);
        let text = openapi.to_pretty_json().expect("a contract is plain JSON");
        let document: serde_json::Value = serde_json::from_str(&text).expect("a contract is JSON");
        let mut rules: HashMap<String, HashMap<Method, Rule>> = HashMap::new();
        for (path, item) in document["paths"].as_object().expect("a contract has paths") {
            for (method, operation) in item.as_object().expect("a path has methods") {
                let Ok(method) = method.to_uppercase().parse() else { continue };
                if let Some(access) = access_of(operation) {
                    let parameters = query_parameters(operation);
                    let dry_run = parameters.iter().any(|name| name == DRY_RUN);
                    let rule = Rule { access, dry_run, by_kind: tells_kinds(path), parameters };
                    rules.entry(path.clone()).or_default().insert(method, rule);
                }
            }
        }
        Self { text: text.into(), rules }
    }

    /// None: no route says so, and nobody gets in.
    pub fn rule(&self, method: &Method, path: &str) -> Option<&Rule> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.rules.get(path)?.get(method)
    }
}

/// Every operation that changes something takes the parameter, unless it says itself that it cannot be tried.
fn offer_dry_runs(openapi: &mut openapi::OpenApi) {
    let parameter = ParameterBuilder::new()
        .name(DRY_RUN)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .schema(Some(ObjectBuilder::new().schema_type(Type::Boolean)))
        .description(Some(
            "Only asks: the answer is what would be answered, refusals included, and nothing is written. \
             What it names as new is not there.",
        ))
        .build();
    for item in openapi.paths.paths.values_mut() {
        let changing = [&mut item.post, &mut item.put, &mut item.delete];
        for operation in changing.into_iter().flatten() {
            let refuses = operation.extensions.as_ref().is_some_and(|more| more.contains_key(NO_DRY_RUN));
            if !refuses {
                operation.parameters.get_or_insert_default().push(parameter.clone().into());
            }
        }
    }
}

/// Lists of works, and everything about one work, one wait or one command. What is listed otherwise is of every kind.
fn tells_kinds(path: &str) -> bool {
    const EXACT: [&str; 4] = ["/v1/work", "/v1/resolve", "/v1/batch", "/v1/tokens"];
    const BELOW: [&str; 4] = ["/v1/work/", "/v1/waits/{id}/", "/v1/commands/{id}", "/v1/tokens/"];
    EXACT.contains(&path) || BELOW.iter().any(|one| path.starts_with(one))
}

fn query_parameters(operation: &serde_json::Value) -> Vec<String> {
    let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
    let query = parameters.iter().filter(|one| one["in"] == "query");
    query.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
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
