//! The intake: its pauses, and how to resume it.

use tenure_api::wire::{Intake, IntakePause};

use super::{Style, safe, text::age};

pub fn intake(intake: &Intake, style: &Style) -> String {
    if intake.pauses.is_empty() {
        return "New work items are accepted.\n".to_owned();
    }
    let line = |pause: &IntakePause| {
        format!(
            "Paused for {} since {} ({} ago) by {}: {}\nNext: {}\n",
            safe(&whose(pause)),
            pause.at,
            age(pause.at, style.now),
            safe(pause.actor.label()),
            safe(&pause.reason),
            safe(&pause.next)
        )
    };
    intake.pauses.iter().map(line).collect()
}

pub fn whose(pause: &IntakePause) -> String {
    pause.tenant.as_ref().map_or_else(|| "every tenant".to_owned(), |tenant| format!("tenant {tenant}"))
}
