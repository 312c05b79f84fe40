//! Lookups ask a provider whether a command took effect. Only a clear answer counts: `found` with evidence,
//! or `absent`. A program that is missing, hangs, fails or prints anything else leaves it unknown, with the
//! reason.
//!
//! The request is the command's body, as its executor gets it. The answer is one JSON document, on stdout of
//! a program that exits with 0 or in a response with status 200:
//!
//! ```json
//! {"outcome": "found", "external_id": "m-1", "ref": "…", "response": {}}
//! {"outcome": "absent"}
//! {"outcome": "unknown", "message": "…"}
//! ```
//!
//! `found` needs at least one of the three fields.

mod file;

use std::{
    path::PathBuf,
    sync::{Arc, LazyLock},
    time::Duration,
};

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use tenure_core::{
    Millis,
    command::{EvidenceKind, Finding},
};

use tenure_store::fair::Fair;

use crate::executor::{Call, Ended, Http, HttpTarget, Outbound, Program, Trouble, evidence, excerpt};

/// Concurrent file lookups, in total and for one tenant: a network disk that hangs blocks its threads.
static FILES: LazyLock<Arc<Fair>> = LazyLock::new(|| Fair::new(16, 8));
/// The timeout of a file lookup, its queueing included.
const FILE_WITHIN: Duration = Duration::from_secs(60);

/// How a tool's commands are looked up.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    Exec(Program),
    Http(Arc<HttpTarget>),
    /// The hash of a file under this folder shows whether it was written.
    File(PathBuf),
    /// A worker claims the lookup and reports its finding.
    Worker,
}

impl Lookup {
    /// The timeout of a lookup.
    pub fn timeout(&self) -> Duration {
        match self {
            Lookup::Exec(program) => program.timeout,
            Lookup::Http(target) => target.timeout,
            Lookup::File(_) => FILE_WITHIN,
            Lookup::Worker => Duration::ZERO,
        }
    }
}

/// Makes a lookup.
#[derive(Clone)]
pub enum Asker {
    Exec(Program),
    Http(Box<Http>),
    File(PathBuf),
}

/// The finding of a lookup, with a message for people.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub finding: Finding,
    pub message: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case", deny_unknown_fields)]
enum Said {
    Found {
        external_id: Option<String>,
        #[serde(rename = "ref")]
        reference: Option<String>,
        response: Option<Value>,
    },
    Absent {},
    Unknown {
        message: Option<String>,
    },
}

impl Asker {
    /// The one that makes the lookup in this process; None if a worker does.
    pub fn new(lookup: &Lookup, outbound: &Outbound) -> Option<Self> {
        match lookup {
            Lookup::Exec(program) => Some(Asker::Exec(program.clone())),
            Lookup::Http(target) => Some(Asker::Http(Box::new(Http::new(outbound, target.clone())))),
            Lookup::File(root) => Some(Asker::File(root.clone())),
            Lookup::Worker => None,
        }
    }

    pub async fn ask(&self, call: &Call, now: Millis) -> Found {
        match self {
            Asker::File(root) => {
                let (root, arguments) = (root.clone(), call.arguments.clone());
                aside(&FILES, FILE_WITHIN, &call.tenant, move || file::look(&root, &arguments)).await
            }
            Asker::Exec(program) => match program.run(&call.body()).await {
                Ended::Exited { code: 0, output } if output.cut => unknown("its output is too long"),
                Ended::Exited { code: 0, output } => read(&output.stdout),
                Ended::Exited { code, output } => {
                    unknown(&format!("the program exited with {code}{}", output.seen()))
                }
                Ended::Killed { signal, output } => unknown(&format!(
                    "the program was killed by signal {}{}",
                    signal.unwrap_or_default(),
                    output.seen()
                )),
                Ended::TimedOut(_) => unknown(&format!("the program timed out after {:?}", program.timeout)),
                Ended::NotStarted(why) => unknown(&why),
            },
            Asker::Http(http) => match http.exchange(call, now).await {
                Ok(answer) => match (answer.status, answer.body) {
                    (StatusCode::OK, Ok(body)) => read(&body),
                    (StatusCode::OK, Err(why)) => unknown(&format!("the response could not be read: {why}")),
                    (status, _) => unknown(&format!("the provider responded with {status}")),
                },
                Err(Trouble::Refused(why) | Trouble::Unreachable(why) | Trouble::Lost(why)) => unknown(&why),
                Err(Trouble::TimedOut(after)) => unknown(&format!("no response came within {after:?}")),
            },
        }
    }
}

/// Looks on a separate thread, in the tenant's turn. A lookup that takes too long keeps its thread and its
/// turn until it ends, and is unknown meanwhile.
async fn aside(
    turns: &Arc<Fair>,
    within: Duration,
    tenant: &str,
    look: impl FnOnce() -> Found + Send + 'static,
) -> Found {
    let looking = async {
        let turn = turns.turn(tenant.into()).await;
        let look = move || {
            let _turn = turn;
            look()
        };
        tenure_store::aside("file-lookup", look).await
    };
    match tokio::time::timeout(within, looking).await {
        Ok(looked) => looked.unwrap_or_else(|broken| unknown(&broken.to_string())),
        Err(_) => unknown(&format!("the file could not be read within {within:?}")),
    }
}

fn read(answer: &[u8]) -> Found {
    let said: Said = match serde_json::from_slice(answer) {
        Ok(said) => said,
        Err(error) => {
            let seen = String::from_utf8_lossy(answer);
            return unknown(&format!("the answer is not a finding ({error}): {}", excerpt(seen.trim(), 300)));
        }
    };
    match said {
        Said::Found { external_id, reference, response } => {
            match evidence(EvidenceKind::Lookup, external_id, reference, response.as_ref()) {
                Ok(proof) => Found { finding: Finding::Found(proof), message: None },
                Err(why) => unknown(&format!("the lookup found it, but {why}")),
            }
        }
        Said::Absent {} => Found { finding: Finding::Absent, message: None },
        Said::Unknown { message } => unknown(message.as_deref().unwrap_or("the lookup does not know")),
    }
}

fn unknown(why: &str) -> Found {
    Found { finding: Finding::Unknown, message: Some(excerpt(why, 1_000)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::example;

    async fn ask(script: &str) -> Found {
        // Only the endless one is cut off: the others may take their time on a busy machine.
        let timeout = Duration::from_millis(if script == "tail -f /dev/null" { 500 } else { 60_000 });
        let program =
            Program { command: ["sh", "-c", script].map(str::to_owned).to_vec(), env: Vec::new(), timeout };
        Asker::Exec(program).ask(&example(), 0).await
    }

    /// One tenant's files are on a disk that does not respond.
    #[tokio::test]
    async fn files_that_hang_keep_few_threads_and_no_other_tenant_waiting() {
        let turns = Fair::new(4, 2);
        let (release, hang) = std::sync::mpsc::channel::<()>();
        let hang = Arc::new(std::sync::Mutex::new(hang));
        let (entered, mut looking) = tokio::sync::mpsc::unbounded_channel();
        let hostile = |within| {
            let (hang, entered, turns) = (hang.clone(), entered.clone(), turns.clone());
            async move {
                let look = move || {
                    entered.send(()).unwrap();
                    let _released = hang.lock().unwrap().recv();
                    unknown("at last")
                };
                aside(&turns, within, "hostile", look).await
            }
        };
        let slow: Vec<_> = (0..2).map(|_| tokio::spawn(hostile(FILE_WITHIN))).collect();
        for _ in &slow {
            looking.recv().await.unwrap();
        }
        let late = hostile(Duration::from_millis(1)).await;
        assert!(late.message.unwrap().contains("within"), "it had no turn");
        assert!(looking.try_recv().is_err(), "and no thread");
        let quiet = aside(&turns, FILE_WITHIN, "quiet", || read(br#"{"outcome":"absent"}"#)).await;
        assert_eq!(quiet.finding, Finding::Absent);
        drop(release);
        for look in slow {
            assert_eq!(look.await.unwrap().message.as_deref(), Some("at last"));
        }
    }

    #[tokio::test]
    async fn a_clear_answer_counts() {
        let found =
            ask(r#"grep -q tenure-0123456789 && echo '{"outcome":"found","external_id":"m-1"}'"#).await;
        match found.finding {
            Finding::Found(proof) => {
                assert_eq!((proof.kind, proof.external_id.as_deref()), (EvidenceKind::Lookup, Some("m-1")));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(ask(r#"echo '{"outcome":"absent"}'"#).await.finding, Finding::Absent);
        let unknown = ask(r#"echo '{"outcome":"unknown","message":"index is behind"}'"#).await;
        assert_eq!(
            (unknown.finding, unknown.message.as_deref()),
            (Finding::Unknown, Some("index is behind"))
        );
    }

    #[tokio::test]
    async fn everything_else_is_unknown_with_a_bounded_reason() {
        for (script, reason) in [
            ("exit 1", "exited with 1"),
            (r#"echo '{"outcome":"absent"}'; exit 3"#, "exited with 3"),
            ("echo 'Traceback: boom' >&2; exit 1", "boom"),
            ("kill -9 $$", "signal 9"),
            ("tail -f /dev/null", "timed out"),
            ("echo yes", "not a finding"),
            ("true", "not a finding"),
            (r#"echo '{"outcome":"found"}'"#, "no evidence"),
            (r#"echo '{"outcome":"absent","external_id":"m-1"}'"#, "not a finding"),
            (r#"echo '{"outcome":"maybe"}'"#, "not a finding"),
            ("head -c 1000000 /dev/zero", "too long"),
            ("head -c 100000 /dev/zero | tr '\\0' x", "not a finding"),
        ] {
            let found = ask(script).await;
            assert_eq!(found.finding, Finding::Unknown, "{script}");
            let message = found.message.unwrap();
            assert!(message.contains(reason), "{script}: {message}");
            assert!(message.chars().count() <= 1_001, "{script}");
        }
    }

    #[tokio::test]
    async fn a_missing_program_is_unknown() {
        let program = Program {
            command: vec!["/no/such/lookup".into()],
            env: Vec::new(),
            timeout: Duration::from_secs(1),
        };
        let found = Asker::Exec(program).ask(&example(), 0).await;
        assert_eq!(found.finding, Finding::Unknown);
        assert!(found.message.unwrap().contains("/no/such/lookup"));
    }
}
