//! The published contract. It is generated from the handlers, and admission reads from it which scope a route
//! needs, so that the documented rules are the enforced ones.

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

/// The query parameter of a dry run.
pub(crate) const DRY_RUN: &str = "dry_run";
/// Marks an operation without a dry run in the contract.
const NO_DRY_RUN: &str = "x-no-dry-run";

/// The access that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Public,
    /// Any genuine token; the handler checks the rest.
    Token,
    Needs(Scope),
}

/// The rules of a route, for admission.
#[derive(Debug)]
pub(crate) struct Rule {
    pub access: Access,
    /// Whether it has a dry run.
    pub dry_run: bool,
    /// Whether it can restrict its result to some kinds of work: only such routes are open to tokens bound to
    /// kinds.
    pub by_kind: bool,
    /// The query parameters it takes.
    pub parameters: Vec<String>,
}

/// The contract as text, and as admission's table.
pub(crate) struct Contract {
    /// Shared by all readers.
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

    /// None when no route declares a rule: nobody is admitted.
    pub fn rule(&self, method: &Method, path: &str) -> Option<&Rule> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.rules.get(path)?.get(method)
    }
}

/// Every operation that changes something takes the parameter, unless it is marked as having no dry run.
fn offer_dry_runs(openapi: &mut openapi::OpenApi) {
    let parameter = ParameterBuilder::new()
        .name(DRY_RUN)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .schema(Some(ObjectBuilder::new().schema_type(Type::Boolean)))
        .description(Some(
            "Dry run: the response is the one that the call would get, refusals included, and nothing is written. \
             Items shown as new do not exist.",
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

/// Lists of work items, and everything about one work item, wait or command. All other lists cover every
/// kind.
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

/// The parts of the document besides its paths.
pub(crate) fn base() -> openapi::OpenApi {
    #[derive(OpenApi)]
    #[openapi(
        info(
            title = "Tenure",
            description = "The work ledger for AI agent runtimes. A 2xx means that the change is committed durably. Every \
                       refusal is a problem (RFC 9457) with a stable `code`, `retryable`, and the next step.",
            license(name = "MIT OR Apache-2.0")
        ),
        components(schemas(wire::Problem, wire::Until))
    )]
    struct Base;
    let mut openapi = Base::openapi();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("A credential's secret. Each route names the scope it needs."))
        .build();
    let components = openapi.components.get_or_insert_default();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    openapi
}

/// Returns this document.
#[utoipa::path(get, path = "/openapi.json", tag = "health", security(()),
    responses((status = 200, description = "The contract.", content_type = "application/json", body = serde_json::Value), Problems))]
pub(crate) async fn openapi(Extension(contract): Extension<Arc<Contract>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], contract.text.clone()).into_response()
}

/// A page that shows the contract, without resources from elsewhere.
#[utoipa::path(get, path = "/docs", tag = "health", security(()),
    responses((status = 200, description = "An HTML page.", content_type = "text/html", body = String), Problems))]
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
