//! Calls by a program: the command as JSON on stdin, its outcome as exit code and JSON on stdout.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | it happened; stdout is `{"external_id"?, "ref"?, "response"?}`, with at least one of them |
//! | 65 | it did not happen, and will not: the command is refused |
//! | 75 | it did not happen; try again later |
//! | 77 | it did not happen: the program is not allowed to |
//! | any other, a signal, a timeout | nobody knows |
//!
//! The codes are the ones of `sysexits.h`. A script that fails half way exits with 1 or 2, which proves
//! nothing.

use serde::Deserialize;
use serde_json::Value;
use tenure_core::{
    Payload,
    command::{EvidenceKind, Proof},
    model::ErrorClass,
};

use super::{
    Call, CallOutcome,
    process::{Ended, Output, Program},
};

const REFUSED: i32 = 65;
const TRY_AGAIN: i32 = 75;
const NOT_ALLOWED: i32 = 77;

/// Calls of one tool by its program.
#[derive(Clone, Debug, PartialEq)]
pub struct Exec(pub Program);

/// The JSON that a program writes to stdout.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    external_id: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    response: Option<Value>,
}

impl Exec {
    pub async fn call(&self, call: &Call) -> CallOutcome {
        self.outcome(self.0.run(&call.body()).await)
    }

    fn outcome(&self, ended: Ended) -> CallOutcome {
        match ended {
            Ended::NotStarted(why) => {
                CallOutcome::unsent(ErrorClass::Misconfigured, format!("nothing was sent: {why}"))
            }
            Ended::Exited { code, output } => exited(code, &output),
            Ended::Killed { signal: Some(signal), output } => CallOutcome::uncertain(
                ErrorClass::Unknown,
                format!("the program was killed by signal {signal}{}", output.seen()),
            ),
            Ended::Killed { signal: None, output } => CallOutcome::uncertain(
                ErrorClass::Unknown,
                format!("the exit status of the program is unknown{}", output.seen()),
            ),
            Ended::TimedOut(output) => CallOutcome::uncertain(
                ErrorClass::Timeout,
                format!("the program timed out after {:?} and was killed{}", self.0.timeout, output.seen()),
            ),
        }
    }
}

fn exited(code: i32, output: &Output) -> CallOutcome {
    let message = format!("the program exited with {code}{}", output.seen());
    match code {
        0 => proof(output).map_or_else(
            |why| {
                CallOutcome::uncertain(
                    ErrorClass::Unknown,
                    format!("the program exited with 0, but {why}{}", output.seen()),
                )
            },
            |proof| CallOutcome::Succeeded(Box::new(proof)),
        ),
        REFUSED => CallOutcome::refused(ErrorClass::Validation, message),
        TRY_AGAIN => CallOutcome::unsent(ErrorClass::Unavailable, message),
        NOT_ALLOWED => CallOutcome::refused(ErrorClass::Auth, message),
        _ => CallOutcome::uncertain(ErrorClass::Unknown, message),
    }
}

pub(crate) fn proof(output: &Output) -> Result<Proof, String> {
    if output.cut {
        return Err("its output is too long".to_owned());
    }
    let said: Said = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("its output is not a receipt ({error})"))?;
    evidence(EvidenceKind::Provider, said.external_id, said.reference, said.response.as_ref())
}

/// A proof, if it contains any evidence.
pub(crate) fn evidence(
    kind: EvidenceKind,
    external_id: Option<String>,
    reference: Option<String>,
    response: Option<&Value>,
) -> Result<Proof, String> {
    let response = response.map(Payload::new).transpose().map_err(|refusal| refusal.detail)?;
    if external_id.is_none() && reference.is_none() && response.is_none() {
        return Err("it has no evidence: no `external_id`, `ref` or `response`".to_owned());
    }
    for (field, text) in [("external_id", &external_id), ("ref", &reference)] {
        let checked = text.iter().try_for_each(|text| tenure_core::limits::reference(field, text));
        checked.map_err(|refusal| refusal.detail)?;
    }
    Ok(Proof { external_id, reference, response, ..Proof::new(kind) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::executor::example;

    async fn run(script: &str) -> CallOutcome {
        let program = Program {
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            env: Vec::new(),
            timeout: Duration::from_millis(500),
        };
        Exec(program).call(&example()).await
    }

    #[test]
    fn a_program_without_a_known_exit_status_is_uncertain() {
        let program = Program { command: Vec::new(), env: Vec::new(), timeout: Duration::ZERO };
        let output = Output { stdout: b"{\"external_id\":\"x\"}".to_vec(), ..Output::default() };
        let outcome = Exec(program).outcome(Ended::Killed { signal: None, output });
        assert!(
            matches!(&outcome, CallOutcome::Uncertain(error) if error.message.contains("is unknown")),
            "{outcome:?}"
        );
    }

    #[tokio::test]
    async fn a_program_that_names_evidence_did_it() {
        let outcome = run(r#"grep -q '"n":1' && echo '{"external_id":"m-1","response":{"ok":true}}'"#).await;
        match outcome {
            CallOutcome::Succeeded(proof) => {
                assert_eq!(proof.external_id.as_deref(), Some("m-1"));
                assert_eq!(proof.response.unwrap().text(), r#"{"ok":true}"#);
            }
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn exit_codes_prove_what_they_are_documented_to_prove() {
        let refused = |class| move |outcome: CallOutcome| matches!(outcome, CallOutcome::Failed { error, unsent: false } if error.class == class);
        assert!(refused(ErrorClass::Validation)(run("echo no such address >&2; exit 65").await));
        assert!(refused(ErrorClass::Auth)(run("exit 77").await));
        assert!(
            matches!(run("exit 75").await, CallOutcome::Failed { error, unsent: true } if error.class == ErrorClass::Unavailable)
        );
        for script in ["exit 1", "exit 2", "exit 127", "kill -9 $$", "tail -f /dev/null"] {
            assert!(matches!(run(script).await, CallOutcome::Uncertain(_)), "{script}");
        }
    }

    #[tokio::test]
    async fn a_success_without_evidence_is_uncertain_and_says_what_was_seen() {
        for (script, seen) in [
            ("echo sent!", "sent!"),
            ("true", "not a receipt"),
            ("echo '{}'", "no evidence"),
            (r#"echo '{"external_id":""}'"#, "is empty"),
            (r#"echo '{"id":"m-1"}'"#, "unknown field"),
            ("head -c 1000000 /dev/zero", "too long"),
        ] {
            match run(script).await {
                CallOutcome::Uncertain(error) => {
                    assert!(error.message.contains(seen), "{script}: {}", error.message);
                    assert!(error.message.chars().count() < 1_100);
                }
                other => panic!("{script}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_did_nothing() {
        let missing = Program {
            command: vec!["/no/such/program".into()],
            env: Vec::new(),
            timeout: Duration::from_secs(1),
        };
        let outcome = Exec(missing).call(&example()).await;
        assert!(
            matches!(outcome, CallOutcome::Failed { error, unsent: true } if error.class == ErrorClass::Misconfigured)
        );
    }
}
