//! The outcome that a response, or its absence, proves. The only place that interprets statuses.

use axum::http::{HeaderMap, StatusCode, header::RETRY_AFTER};
use serde_json::Value;
use tenure_core::{
    Millis, Payload,
    command::{CallError, EvidenceKind, Proof},
    limits,
    model::ErrorClass,
};

use super::{HttpAnswer, HttpTarget, IdPlace, Trouble};
use crate::executor::{CallOutcome, excerpt, problem};

/// The longest delay that a provider can ask for.
const LONGEST_RETRY_AFTER_MS: u64 = 24 * 3_600_000;

pub(super) fn outcome(target: &HttpTarget, answer: &HttpAnswer, now: Millis) -> CallOutcome {
    let status = answer.status;
    let error = |class| CallError {
        retry_after_ms: retry_after(&answer.headers, now),
        ..problem(class, format!("the provider responded with {status}{}", said(answer)))
    };
    if status.is_success() {
        return success(target, answer);
    }
    if target.unsent_statuses.contains(&status.as_u16()) {
        return CallOutcome::Failed { error: error(ErrorClass::Unavailable), unsent: true };
    }
    match status {
        StatusCode::GONE => CallOutcome::Gone(error(ErrorClass::Misconfigured)),
        // Another call with this key is in progress, or its result exists already, or may exist yet.
        StatusCode::CONFLICT | StatusCode::REQUEST_TIMEOUT => {
            CallOutcome::Uncertain(error(ErrorClass::Unknown))
        }
        _ if status.is_client_error() => {
            CallOutcome::Failed { error: error(client_error(status)), unsent: false }
        }
        _ if status.is_server_error() => CallOutcome::Uncertain(error(ErrorClass::Unavailable)),
        // A redirect may be sent before or after the effect.
        _ => CallOutcome::Uncertain(error(ErrorClass::Unknown)),
    }
}

fn client_error(status: StatusCode) -> ErrorClass {
    match status {
        StatusCode::TOO_MANY_REQUESTS => ErrorClass::RateLimited,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
            ErrorClass::Auth
        }
        StatusCode::PAYMENT_REQUIRED => ErrorClass::Quota,
        StatusCode::NOT_FOUND | StatusCode::MISDIRECTED_REQUEST => ErrorClass::Misconfigured,
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::UNSUPPORTED_MEDIA_TYPE => ErrorClass::Unsupported,
        _ => ErrorClass::Validation,
    }
}

fn success(target: &HttpTarget, answer: &HttpAnswer) -> CallOutcome {
    let json = answer.body.as_ref().ok().and_then(|body| serde_json::from_slice::<Value>(body).ok());
    let external_id = match &target.external_id {
        None => None,
        Some(IdPlace::Header(name)) => {
            answer.headers.get(name).and_then(|id| id.to_str().ok()).map(str::to_owned)
        }
        Some(IdPlace::Body(pointer)) => json.as_ref().and_then(|json| match pointer.find(json) {
            Some(Value::String(id)) => Some(id.clone()),
            Some(Value::Number(id)) => Some(id.to_string()),
            _ => None,
        }),
    };
    let external_id = external_id.filter(|id| limits::reference("external_id", id).is_ok());
    if target.external_id.is_some() && external_id.is_none() {
        let status = answer.status;
        return CallOutcome::uncertain(
            ErrorClass::Unknown,
            format!(
                "the provider responded with {status} but without the id that the tool declares{}",
                said(answer)
            ),
        );
    }
    CallOutcome::Succeeded(Box::new(Proof {
        external_id,
        reference: Some(format!("HTTP {}", answer.status.as_u16())),
        response: response(answer, json),
        ..Proof::new(EvidenceKind::Provider)
    }))
}

/// JSON if it can be stored exactly, otherwise the beginning of the text.
fn response(answer: &HttpAnswer, json: Option<Value>) -> Option<Payload> {
    if let Some(payload) = json.and_then(|json| Payload::new(&json).ok()) {
        return Some(payload);
    }
    let body = answer.body.as_ref().ok().filter(|body| !body.is_empty())?;
    let text = excerpt(&String::from_utf8_lossy(body), limits::TEXT_CHARS);
    Payload::new(&Value::String(text)).ok()
}

fn said(answer: &HttpAnswer) -> String {
    match &answer.body {
        Ok(body) if body.is_empty() => String::new(),
        Ok(body) => format!(": {}", excerpt(&String::from_utf8_lossy(body), 300)),
        Err(why) => format!(", and its body could not be read: {why}"),
    }
}

fn retry_after(headers: &HeaderMap, now: Millis) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let ms = match text.parse::<u64>() {
        Ok(seconds) => seconds.saturating_mul(1_000),
        Err(_) => {
            let at = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond();
            u64::try_from(at - now).unwrap_or(0)
        }
    };
    Some(ms.min(LONGEST_RETRY_AFTER_MS))
}

pub(super) fn no_answer(trouble: Trouble) -> CallOutcome {
    match trouble {
        Trouble::Refused(why) => {
            CallOutcome::unsent(ErrorClass::Misconfigured, format!("nothing was sent: {why}"))
        }
        Trouble::Unreachable(why) => {
            CallOutcome::unsent(ErrorClass::Transport, format!("nothing was sent: {why}"))
        }
        Trouble::Lost(why) => CallOutcome::uncertain(
            ErrorClass::Transport,
            format!("the connection broke before a response came: {why}"),
        ),
        Trouble::TimedOut(after) => {
            CallOutcome::uncertain(ErrorClass::Timeout, format!("no response came within {after:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(status: u16, headers: &[(&'static str, &str)], body: &str, target: HttpTarget) -> CallOutcome {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let answer = HttpAnswer {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.collect(),
            body: Ok(body.to_owned().into()),
        };
        outcome(&target, &answer, 784_111_777_000)
    }

    #[test]
    fn each_status_proves_an_outcome() {
        let plain = |status| judged(status, &[], "because", HttpTarget::default());
        let class = |outcome: &CallOutcome| match outcome {
            CallOutcome::Failed { error, .. } | CallOutcome::Gone(error) | CallOutcome::Uncertain(error) => {
                Some(error.class)
            }
            CallOutcome::Succeeded(_) => None,
        };
        for status in [200, 201, 202, 204] {
            assert!(matches!(plain(status), CallOutcome::Succeeded(_)), "{status}");
        }
        for (status, expected) in [
            (400, ErrorClass::Validation),
            (401, ErrorClass::Auth),
            (402, ErrorClass::Quota),
            (404, ErrorClass::Misconfigured),
            (405, ErrorClass::Unsupported),
            (422, ErrorClass::Validation),
            (429, ErrorClass::RateLimited),
        ] {
            let outcome = plain(status);
            assert!(matches!(outcome, CallOutcome::Failed { unsent: false, .. }), "{status}");
            assert_eq!(class(&outcome), Some(expected), "{status}");
        }
        for status in [301, 302, 303, 304, 408, 409, 500, 502, 503, 504, 599] {
            assert!(matches!(plain(status), CallOutcome::Uncertain(_)), "{status}");
        }
        assert!(matches!(plain(410), CallOutcome::Gone(error) if error.message.contains("because")));
    }

    #[test]
    fn a_status_that_the_provider_declares_safe_is_proven_unsent() {
        let target = HttpTarget { unsent_statuses: vec![503], ..HttpTarget::default() };
        match judged(503, &[("retry-after", "7")], "", target) {
            CallOutcome::Failed { error, unsent: true } => assert_eq!(error.retry_after_ms, Some(7_000)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn how_long_to_stay_away_is_read_in_both_forms_and_bounded() {
        for (text, expected) in [
            ("120", Some(120_000)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60_000)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("99999999999", Some(LONGEST_RETRY_AFTER_MS)),
            ("soon", None),
        ] {
            let headers = [(RETRY_AFTER, text.parse().unwrap())].into_iter().collect();
            assert_eq!(retry_after(&headers, 784_111_777_000), expected, "{text}");
        }
    }

    #[test]
    fn a_success_is_believed_by_the_declared_id_only() {
        let by = |place| HttpTarget { external_id: Some(place), ..HttpTarget::default() };
        let id = |outcome| match outcome {
            CallOutcome::Succeeded(proof) => proof.external_id,
            other => panic!("{other:?}"),
        };
        let header = || by(IdPlace::Header("x-message-id".parse().unwrap()));
        assert_eq!(id(judged(200, &[("x-message-id", "m-1")], "", header())).as_deref(), Some("m-1"));
        let body = || by(IdPlace::Body("/data/id".parse().unwrap()));
        assert_eq!(id(judged(200, &[], r#"{"data":{"id":77}}"#, body())).as_deref(), Some("77"));
        for garbage in ["", "<html>", r#"{"data":{}}"#, r#"{"data":{"id":""}}"#] {
            assert!(matches!(judged(200, &[], garbage, body()), CallOutcome::Uncertain(_)), "{garbage}");
        }
    }

    #[test]
    fn an_answer_is_kept_as_json_or_as_bounded_text() {
        let kept = |body: &str| match judged(200, &[], body, HttpTarget::default()) {
            CallOutcome::Succeeded(proof) => proof.response.map(|payload| payload.text().to_owned()),
            other => panic!("{other:?}"),
        };
        assert_eq!(kept(r#"{ "b": 1, "a": 2 }"#).as_deref(), Some(r#"{"a":2,"b":1}"#));
        assert_eq!(kept("ok").as_deref(), Some("\"ok\""));
        assert_eq!(kept(""), None);
        assert!(kept(&"x".repeat(100_000)).unwrap().chars().count() < 5_000);
        assert!(kept(r#"{"n":9007199254740993}"#).unwrap().starts_with('"'));
    }
}
