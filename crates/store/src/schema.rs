//! JSON schemas that come from elsewhere, compiled in one way whoever uses them: their cost is bounded, patterns run in
//! linear time, nothing outside is referred to, and complaints are few and short.

mod bounds;

use std::time::Duration;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;
use tenure_core::{Code, Refusal};
use tokio::sync::Semaphore;

use bounds::{CHECKS, parts, values};

/// Complaints that are told at once, and how long each may be.
pub const TOLD: usize = 3;
const TOLD_CHARS: usize = 200;

/// So few checks are made at once.
const LIGHT_CHECKS: u64 = 10_000;

/// What a pattern may compile to, in bytes.
const PATTERN_BYTES: usize = 512 * 1024;

/// How long a caller waits for schemas to be compiled and applied.
const DEADLINE: Duration = Duration::from_secs(2);
/// Threads that do so at a time. One that goes past its deadline keeps its place until it ends.
static THREADS: Semaphore = Semaphore::const_new(2);

/// A schema that can be applied.
#[derive(Debug)]
pub struct Compiled {
    validator: Validator,
    parts: u64,
}

/// A schema that cannot be used is told with why.
pub fn compile(schema: &Value) -> Result<Compiled, String> {
    let parts = parts(schema)?;
    let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES);
    let options = jsonschema::options().with_pattern_options(patterns);
    let validator = options.build(schema).map_err(|error| shortened(error.to_string()))?;
    Ok(Compiled { validator, parts })
}

impl Compiled {
    /// Whether a value is checked in less time than it takes to ask another thread.
    pub fn is_light(&self, value: &Value) -> bool {
        self.parts.saturating_mul(values(value)) <= LIGHT_CHECKS
    }

    /// What does not fit, or that there is too much to look at.
    pub fn errors<'i>(
        &'i self,
        value: &'i Value,
    ) -> Result<impl Iterator<Item = ValidationError<'i>> + use<'i>, Refusal> {
        let values = values(value);
        if self.parts.saturating_mul(values) > CHECKS {
            let detail = format!(
                "The schema has {} parts and the JSON some {values} values: more than {CHECKS} checks. Send less, or use a \
                 simpler schema.",
                self.parts
            );
            return Err(Refusal::new(Code::LimitReached, detail));
        }
        Ok(self.validator.iter_errors(value))
    }
}

/// Compiles or applies schemas on a thread of its own, so that no call of anybody else waits for it, within a deadline.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let done = tokio::time::timeout(DEADLINE, async {
        let place = THREADS.acquire().await;
        let work = move || {
            let _place = place;
            work()
        };
        tokio::task::spawn_blocking(work).await
    });
    let too_long =
        |why: &str| Refusal::new(Code::LimitReached, format!("The schema could not be applied: {why}"));
    match done.await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(too_long("it was given up. Use a simpler schema.")),
        Err(_) => Err(too_long("it took longer than two seconds. Use a simpler schema, or try again later.")),
    }
}

/// A complaint may quote a value, and be as long as that.
pub fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(TOLD_CHARS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_runs_in_linear_time_and_fetches_nothing() {
        for wrong in [
            json!({ "type": "nonsense" }),
            json!(7),
            json!({ "$ref": "https://example.com/schema.json" }),
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "pattern": "^(a+)+\\1$" }),
            json!({ "pattern": "((a{100}){100}){100}" }),
        ] {
            assert!(compile(&wrong).is_err(), "{wrong}");
        }
        let slow = compile(&json!({ "pattern": "^(a+)+$" })).unwrap();
        let long = json!(format!("{}!", "a".repeat(100_000)));
        assert_eq!(slow.errors(&long).unwrap().count(), 1);
        assert!(compile(&json!({ "pattern": "^[\\w.+-]+@[\\w-]+\\.[\\w.-]+$" })).is_ok());
    }

    #[test]
    fn too_many_checks_are_refused_before_they_are_made() {
        let wide = json!({ "items": { "enum": (0..4_000).collect::<Vec<_>>() } });
        let compiled = compile(&wide).unwrap();
        assert_eq!(compiled.errors(&json!([1, 2, 4_000])).unwrap().count(), 1);
        let refusal = compiled.errors(&json!(vec![1; 100_000])).err().unwrap();
        assert_eq!(refusal.code, Code::LimitReached);
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_that_hangs_keeps_nobody_waiting() {
        let (end, hang) = std::sync::mpsc::channel::<()>();
        let hung = tokio::spawn(aside(move || _ = hang.recv()));
        tokio::task::yield_now().await;
        tokio::time::advance(DEADLINE).await;
        assert_eq!(hung.await.unwrap().unwrap_err().code, Code::LimitReached);
        assert_eq!(aside(|| 7).await.unwrap(), 7, "there is another thread");
        drop(end);
    }
}
