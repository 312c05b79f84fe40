//! The only place where a failure becomes a problem: its code, status, whether to retry, and what to do.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tenure_api::wire::{self, Code};
use tenure_core::{Code as CoreCode, Refusal, Retryable};
use tenure_store::Error;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

use crate::{
    auth::Denied,
    wire::{Shown, command},
};

/// A failure to be returned as a problem.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub code: Code,
    pub detail: Cow<'static, str>,
    retryable: Option<bool>,
    extensions: BTreeMap<String, Value>,
    retry_after: Option<Duration>,
    command: Option<Box<wire::Command>>,
}

/// The status of each code.
pub(crate) const fn status(code: Code) -> StatusCode {
    match code {
        Code::Invalid | Code::Malformed | Code::UnknownField => StatusCode::BAD_REQUEST,
        Code::Unauthorized => StatusCode::UNAUTHORIZED,
        Code::Forbidden
        | Code::OriginRefused
        | Code::PersonRequired
        | Code::TokenRefused
        | Code::FourEyes => StatusCode::FORBIDDEN,
        Code::NotFound | Code::NoSuchRoute => StatusCode::NOT_FOUND,
        Code::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Code::NoLongerRetained => StatusCode::GONE,
        Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Code::UriTooLong => StatusCode::URI_TOO_LONG,
        Code::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        Code::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Code::HostRefused => StatusCode::MISDIRECTED_REQUEST,
        Code::PayloadRefused
        | Code::UnknownSource
        | Code::ImpossibleTimings
        | Code::ResultMissing
        | Code::ReasonMissing
        | Code::ReferenceReserved
        | Code::AnswerMismatch
        | Code::EvidenceMissing
        | Code::Unsupported
        | Code::OtherLedger
        | Code::AnchorForged
        | Code::BeforeLog
        | Code::InFuture => StatusCode::UNPROCESSABLE_ENTITY,
        Code::Ambiguous
        | Code::IdempotencyMismatch
        | Code::StateChanged
        | Code::PlanStale
        | Code::Busy
        | Code::NotClaimable
        | Code::LeaseLost
        | Code::LeaseLapsed
        | Code::IllegalState
        | Code::Terminal
        | Code::CancelDeadline
        | Code::Spinning
        | Code::CancelRequested
        | Code::StepMismatch
        | Code::OwnerBound
        | Code::ParentClosed
        | Code::LimitReached
        | Code::PolicyStale
        | Code::PolicyDenied
        | Code::ApprovalRequired
        | Code::Budget
        | Code::AlreadySucceeded
        | Code::Superseded
        | Code::CommandsOpen
        | Code::InDoubt
        | Code::AlreadyDispatched
        | Code::DispatchSuperseded
        | Code::NotDue
        | Code::SealBroken
        | Code::IntakePaused => StatusCode::CONFLICT,
        Code::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable | Code::ReadTimeout | Code::OutcomeUnknown | Code::Stopped => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Code::NewerVersion => StatusCode::NOT_IMPLEMENTED,
        Code::Corrupt | Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

const fn code_of(code: CoreCode) -> Code {
    match code {
        CoreCode::Invalid => Code::Invalid,
        CoreCode::PayloadRefused => Code::PayloadRefused,
        CoreCode::UnknownSource => Code::UnknownSource,
        CoreCode::ImpossibleTimings => Code::ImpossibleTimings,
        CoreCode::NotFound => Code::NotFound,
        CoreCode::IdempotencyMismatch => Code::IdempotencyMismatch,
        CoreCode::Busy => Code::Busy,
        CoreCode::NotClaimable => Code::NotClaimable,
        CoreCode::LeaseLost => Code::LeaseLost,
        CoreCode::LeaseLapsed => Code::LeaseLapsed,
        CoreCode::IllegalState => Code::IllegalState,
        CoreCode::Terminal => Code::Terminal,
        CoreCode::CancelDeadline => Code::CancelDeadline,
        CoreCode::Spinning => Code::Spinning,
        CoreCode::CancelRequested => Code::CancelRequested,
        CoreCode::ResultMissing => Code::ResultMissing,
        CoreCode::StepMismatch => Code::StepMismatch,
        CoreCode::PersonRequired => Code::PersonRequired,
        CoreCode::ReasonMissing => Code::ReasonMissing,
        CoreCode::OwnerBound => Code::OwnerBound,
        CoreCode::ReferenceReserved => Code::ReferenceReserved,
        CoreCode::ParentClosed => Code::ParentClosed,
        CoreCode::LimitReached | CoreCode::QuotaReached => Code::LimitReached,
        CoreCode::TokenRefused => Code::TokenRefused,
        CoreCode::Ambiguous => Code::Ambiguous,
        CoreCode::AnswerMismatch => Code::AnswerMismatch,
        CoreCode::NoLongerRetained => Code::NoLongerRetained,
        CoreCode::StateChanged => Code::StateChanged,
        CoreCode::PlanStale => Code::PlanStale,
        CoreCode::PolicyStale => Code::PolicyStale,
        CoreCode::PolicyDenied => Code::PolicyDenied,
        CoreCode::ApprovalRequired => Code::ApprovalRequired,
        CoreCode::Budget => Code::Budget,
        CoreCode::AlreadySucceeded => Code::AlreadySucceeded,
        CoreCode::Superseded => Code::Superseded,
        CoreCode::CommandsOpen => Code::CommandsOpen,
        CoreCode::InDoubt => Code::InDoubt,
        CoreCode::AlreadyDispatched => Code::AlreadyDispatched,
        CoreCode::DispatchSuperseded => Code::DispatchSuperseded,
        CoreCode::NotDue => Code::NotDue,
        CoreCode::EvidenceMissing => Code::EvidenceMissing,
        CoreCode::SealBroken => Code::SealBroken,
        CoreCode::FourEyes => Code::FourEyes,
        CoreCode::Forbidden => Code::Forbidden,
        CoreCode::Unsupported => Code::Unsupported,
        CoreCode::IntakePaused => Code::IntakePaused,
        CoreCode::OtherLedger => Code::OtherLedger,
        CoreCode::AnchorForged => Code::AnchorForged,
        CoreCode::BeforeLog => Code::BeforeLog,
        CoreCode::InFuture => Code::InFuture,
    }
}

const fn known(retryable: Retryable) -> Option<bool> {
    match retryable {
        Retryable::Yes => Some(true),
        Retryable::No => Some(false),
        Retryable::Unknown => None,
    }
}

impl Problem {
    /// A problem that retrying does not cure.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            detail: detail.into(),
            retryable: Some(false),
            extensions: BTreeMap::new(),
            retry_after: None,
            command: None,
        }
    }

    pub fn invalid(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::Invalid, detail)
    }

    /// A query parameter that the route does not take. Nothing was done.
    pub fn unknown_parameter(name: &str, known: &[String]) -> Self {
        let takes = match known {
            [] => "It takes none".to_owned(),
            known => format!("It takes `{}`", known.join("`, `")),
        };
        let detail = format!("`{name}` is not a query parameter of this route. {takes}. Nothing was done.");
        let mut problem = Self::new(Code::UnknownField, detail);
        problem.extensions.insert("parameter".to_owned(), json!(name));
        problem.extensions.insert("known".to_owned(), json!(known));
        problem
    }

    /// Nothing was done: this is the recovery plan now.
    pub fn stale_plan(plan: &str, rows: Value) -> Self {
        let detail = format!(
            "The ledger has changed since that plan, or the filter is another one: the plan is {plan} now. Nothing was \
             done. Look at its rows, and apply it by its new id."
        );
        let extensions = [("plan".to_owned(), json!(plan)), ("rows".to_owned(), rows)].into();
        Self { extensions, ..Self::new(Code::PlanStale, detail) }
    }

    /// Nothing was done; a retry after this time can succeed.
    pub fn later(code: Code, detail: impl Into<Cow<'static, str>>, wait: Duration) -> Self {
        Self { retryable: Some(true), retry_after: Some(wait), ..Self::new(code, detail) }
    }

    /// The problem of a refused dispatch, with its command: the call must not be made.
    pub fn with_command(self, command: wire::Command) -> Self {
        Self { command: Some(Box::new(command)), ..self }
    }

    pub fn into_wire(self) -> wire::Problem {
        let status = status(self.code);
        wire::Problem {
            kind: format!("urn:tenure:problem:{}", self.code),
            title: status.canonical_reason().unwrap_or("Problem").to_owned(),
            status: status.as_u16(),
            detail: self.detail.into_owned(),
            instance: None,
            code: self.code.into(),
            retryable: self.retryable,
            retry_after_ms: self.retry_after.map(|wait| wait.as_millis() as u64),
            command: self.command,
            extensions: self.extensions,
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let retryable = known(refusal.retryable());
        let retry_after = (refusal.code == CoreCode::QuotaReached).then_some(Duration::from_secs(5));
        Self { retryable, retry_after, ..Self::new(code_of(refusal.code), refusal.detail) }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let retryable = known(error.retryable());
        let code = match error {
            Error::Refused(refusal) => return refusal.into(),
            Error::NotDispatched(not) => {
                let shown = Shown { response: not.response.as_ref(), ..Shown::default() };
                let command = command(&not.command, &shown);
                return Self::from(not.refusal).with_command(command);
            }
            Error::Unavailable(_) => Code::Unavailable,
            Error::ReadTimeout => Code::ReadTimeout,
            Error::OutcomeUnknown(_) => Code::OutcomeUnknown,
            Error::Stopped(_) | Error::WeakSettings(_) | Error::Unusable(_) => Code::Stopped,
            Error::Corrupt(_) => Code::Corrupt,
            Error::Newer(_) => Code::NewerVersion,
        };
        let retry_after = (retryable == Some(true)).then_some(Duration::from_secs(1));
        Self { retryable, retry_after, ..Self::new(code, error.to_string()) }
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        let unauthorized = |detail: &'static str| Self::new(Code::Unauthorized, detail);
        match denied {
            Denied::NoToken => unauthorized(
                "There is no bearer token. Send `Authorization: Bearer …`; `tenure token create` creates one.",
            ),
            Denied::UnknownToken => unauthorized("This token is unknown. Check it, or create a new one."),
            Denied::TooManyWrong => Self::later(
                Code::RateLimited,
                "Too many wrong tokens came from this address. Check the token, and wait for `Retry-After`.",
                Duration::from_secs(1),
            ),
            Denied::Kinds => Self::new(
                Code::Forbidden,
                "This route covers every kind of work, and this token is bound to some kinds. List work items, or read one by its id.",
            ),
            Denied::Expired => unauthorized("This token has expired. Create a new one."),
            Denied::Revoked => unauthorized("This token was revoked. Create a new one."),
            Denied::Tenants => Self::new(
                Code::Forbidden,
                "This route covers every tenant, and this token is bound to some tenants. Use one without that restriction.",
            ),
            Denied::Scope(scope) => Self {
                extensions: [("scope".to_owned(), json!(scope))].into(),
                ..Self::new(
                    Code::Forbidden,
                    format!("This token lacks the scope `{scope}`. Use one that has it."),
                )
            },
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = status(self.code);
        if status.is_server_error() {
            tracing::error!(code = %self.code, detail = %self.detail, "a request failed");
        }
        let retry_after = self.retry_after.map(|wait| wait.as_millis().div_ceil(1_000) as u64);
        let body = serde_json::to_vec(&self.into_wire()).expect("a problem is plain JSON");
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(wire::Problem::MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// The statuses that any route can respond with, for the contract.
pub(crate) struct Problems;

impl utoipa::IntoResponses for Problems {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let mut by_status = BTreeMap::<u16, Vec<&str>>::new();
        for code in Code::ALL {
            by_status.entry(status(*code).as_u16()).or_default().push(code.as_str());
        }
        let schema = Ref::from_schema_name("Problem");
        let response = |codes: Vec<&str>| {
            let content = ContentBuilder::new().schema(Some(schema.clone())).build();
            let text = format!("Refused: {}.", codes.join(", "));
            ResponseBuilder::new().description(text).content(wire::Problem::MEDIA_TYPE, content).build()
        };
        by_status.into_iter().map(|(status, codes)| (status.to_string(), response(codes).into())).collect()
    }
}
