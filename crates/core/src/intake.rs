//! Intake: whether new work items are accepted. People set pauses, which are stored beside the log; this
//! module decides what a pause stops.

use crate::{
    Millis,
    event::Actor,
    next::Next,
    refusal::{Code, Refusal},
    schedule::rfc3339,
};

/// A pause of the intake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// None: every tenant.
    pub tenant: Option<String>,
    pub by: Actor,
    pub at: Millis,
    pub reason: String,
}

impl Pause {
    pub fn covers(&self, tenant: &str) -> bool {
        self.tenant.as_deref().is_none_or(|paused| paused == tenant)
    }

    /// Whose intake is paused, since when, by whom and why.
    pub fn words(&self) -> String {
        let whose = match &self.tenant {
            Some(tenant) => format!("tenant {tenant}"),
            None => "every tenant".to_owned(),
        };
        format!(
            "Intake of {whose} was paused by {} at {}: {}",
            self.by.label(),
            rfc3339(self.at),
            self.reason
        )
    }

    /// The command that ends it.
    pub fn resume(&self) -> Next {
        Next::ResumeIntake(self.tenant.clone())
    }
}

/// Whether a new work item of this tenant is accepted.
pub fn open(pauses: &[Pause], tenant: &str) -> Result<(), Refusal> {
    let Some(pause) = pauses.iter().find(|pause| pause.covers(tenant)) else { return Ok(()) };
    let detail = format!(
        "{}. Nothing was written: repeat the request later. `{}` ends the pause.",
        pause.words(),
        pause.resume()
    );
    Err(Refusal::new(Code::IntakePaused, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_stops_its_tenant_or_all_and_names_the_command_to_end_it() {
        let pause = |tenant: Option<&str>| Pause {
            tenant: tenant.map(str::to_owned),
            by: Actor::person("ana"),
            at: 1_794_787_199_999,
            reason: "the database moves".into(),
        };
        assert_eq!(open(&[pause(Some("a"))], "b"), Ok(()));
        let refusal = open(&[pause(Some("a"))], "a").unwrap_err();
        assert_eq!(refusal.code, Code::IntakePaused);
        assert_eq!(
            refusal.detail,
            "Intake of tenant a was paused by ana at 2026-11-15T23:59:59.999Z: the database moves. Nothing \
             was written: repeat the request later. `tenure intake resume --tenant=a` ends the \
             pause."
        );
        let refusal = open(&[pause(None)], "a").unwrap_err();
        assert!(
            refusal.detail.contains("Intake of every tenant")
                && refusal.detail.contains("`tenure intake resume`")
        );
    }
}
