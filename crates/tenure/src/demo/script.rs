//! The script: a list of cues for each act, chosen by the dice alone.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tenure_api::wire::{Disposition, Ingest, Source};

use super::dice::Dice;

/// How many beats an act has.
pub const ACT: u32 = 44;
/// For how many beats the play waits for the viewer before it answers itself.
pub const APPROVAL_PATIENCE: u32 = 30;
pub const LOGIN_PATIENCE: u32 = 12;

/// A task for somebody. It is the input of a work item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Errand {
    pub title: String,
    /// Steps, each with its length in beats.
    pub steps: Vec<(String, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Need>,
    /// Its effect, after the last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

/// A side effect: a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    pub tool: String,
    pub target: String,
    pub arguments: Value,
    /// The provider, and the prefix of its ids.
    pub provider: String,
    pub prefix: String,
    /// The approver, if it needs an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approver: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mishap: Option<Mishap>,
}

/// A problem with a call that takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mishap {
    /// The response is lost.
    Lost,
    /// And the first lookup does not find it.
    LostAndHidden,
}

/// Something that delays an errand after its first step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// A person's approval.
    Approval { reference: String, question: String },
    /// An account whose login has expired.
    Login { reference: String, account: String },
    /// The search API, which sometimes refuses.
    Search,
}

/// An errand with its ledger attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub system: &'static str,
    pub id: String,
    pub kind: &'static str,
    pub session: Option<String>,
    pub disposition: Disposition,
    pub errand: Errand,
}

impl Task {
    pub fn ingest(&self) -> Ingest {
        let source = Source { system: self.system.to_owned(), id: self.id.clone(), run_id: String::new() };
        let input = serde_json::to_value(&self.errand).unwrap_or(Value::Null);
        Ingest { session: self.session.clone(), ..Ingest::new(source, self.kind, self.disposition, input) }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cue {
    /// It is ingested, and runs normally.
    Comes(Task),
    /// The researcher's machine loses power while it works on this.
    PowerCut(Task),
    /// A laptop claims this and is closed before it is done.
    LidClosed(Task),
    /// The search API refuses everybody for this many beats, when these are ingested.
    TooManyRequests(Vec<Task>, u32),
}

/// One act: cues with their beats, in order. The first act has its troubles in a fixed order, so that a
/// newcomer soon has something to answer.
pub fn act(number: u32, dice: &mut Dice) -> Vec<(u32, Cue)> {
    let mut topics = TOPICS;
    dice.shuffle(&mut topics);
    let mut troubles = vec![
        Cue::Comes(deploy(number, dice)),
        Cue::Comes(booking(number, dice)),
        Cue::PowerCut(research(number, "long", 10, topics[0])),
        Cue::LidClosed(export(number)),
        Cue::TooManyRequests(storm(number, &topics[1..], dice), 9),
        Cue::Comes(offer(number, dice)),
        Cue::Comes(payment(number, "invoice", "ana", dice)),
        Cue::Comes(ticket(number, dice)),
    ];
    if number > 1 {
        dice.shuffle(&mut troubles);
    } else {
        // This one is left to the viewer, without a time limit.
        troubles.push(Cue::Comes(payment(number, "deposit", "you", dice)));
    }
    let starts = [1, 4, 7, 12, 22, 2, 9, 15, 6];
    let mut cues: Vec<(u32, Cue)> = starts.into_iter().zip(troubles).collect();
    let mut beat = 0;
    for n in 0.. {
        beat += dice.between(2, 4);
        if beat >= ACT {
            break;
        }
        cues.push((beat, Cue::Comes(reply(number, n, dice))));
    }
    cues.sort_by_key(|(beat, _)| *beat);
    cues
}

const PEOPLE: [&str; 6] = ["Mara", "Jonas", "Priya", "Tomás", "Yuki", "Leila"];
const MATTERS: [&str; 6] = [
    "about the invoice of May",
    "who lost a password",
    "asking for a refund",
    "about the delivery date",
    "who wants a demo on Friday",
    "reporting a broken link",
];
const PAYEES: [(&str, &str); 3] = [
    ("Northwind Paper", "DE02-1203-0000"),
    ("Harbour Cleaning", "DE88-5001-0517"),
    ("Lumen Hosting", "NL91-ABNA-0417"),
];
const TOPICS: [&str; 5] = [
    "three vendors of solar panels",
    "what the new privacy law asks of us",
    "reviews of the competitor's release",
    "flight prices to Lisbon in June",
    "papers on battery recycling",
];

fn steps(steps: &[(&str, u32)]) -> Vec<(String, u32)> {
    steps.iter().map(|(name, beats)| ((*name).to_owned(), *beats)).collect()
}

fn reply(act: u32, n: u32, dice: &mut Dice) -> Task {
    let (person, matter) = (*dice.pick(&PEOPLE), *dice.pick(&MATTERS));
    Task {
        system: "conversation",
        id: format!("mail-{act}-{n}"),
        kind: "reply",
        session: Some(format!("chat-{}", person.to_lowercase())),
        disposition: Disposition::Rerunnable,
        errand: Errand {
            title: format!("answer {person} {matter}"),
            steps: steps(&[("read", 1), ("draft", dice.between(1, 4)), ("send", 1)]),
            needs: None,
            effect: None,
        },
    }
}

/// An e-mail that is sent, but whose response is lost.
fn offer(act: u32, dice: &mut Dice) -> Task {
    let person = *dice.pick(&PEOPLE);
    let address = format!("{}@customer.example", person.to_lowercase().replace('á', "a"));
    let effect = Effect {
        tool: "send_email".to_owned(),
        arguments: json!({ "to": address, "subject": format!("Our offer no. {}", 4_000 + act) }),
        target: address,
        provider: "the mail server".to_owned(),
        prefix: "msg".to_owned(),
        approver: None,
        mishap: Some(Mishap::Lost),
    };
    Task {
        system: "conversation",
        id: format!("offer-{act}"),
        kind: "reply",
        session: None,
        disposition: Disposition::Rerunnable,
        errand: Errand {
            title: format!("send {person} the offer"),
            steps: steps(&[("draft", 2)]),
            needs: None,
            effect: Some(effect),
        },
    }
}

fn payment(act: u32, what: &str, approver: &str, dice: &mut Dice) -> Task {
    let (payee, account) = *dice.pick(&PAYEES);
    let amount = dice.between(3, 40) * 50;
    let effect = Effect {
        tool: "pay".to_owned(),
        target: account.to_owned(),
        arguments: json!({ "amount": amount, "currency": "EUR", "payee": payee, "for": what }),
        provider: "the bank".to_owned(),
        prefix: "tx".to_owned(),
        approver: Some(approver.to_owned()),
        mishap: None,
    };
    Task {
        system: "control",
        id: format!("{what}-{act}"),
        kind: "payment",
        session: None,
        disposition: Disposition::Rerunnable,
        errand: Errand {
            title: format!("pay {payee} the {what} of {amount} EUR"),
            steps: steps(&[("check the books", 1)]),
            needs: None,
            effect: Some(effect),
        },
    }
}

/// A ticket that is created, although the tracker's search does not find it at once.
fn ticket(act: u32, dice: &mut Dice) -> Task {
    let person = *dice.pick(&PEOPLE);
    let effect = Effect {
        tool: "create_ticket".to_owned(),
        target: "engineering".to_owned(),
        arguments: json!({ "title": format!("Broken link reported by {person}"), "number": act }),
        provider: "the issue tracker".to_owned(),
        prefix: "ENG".to_owned(),
        approver: None,
        mishap: Some(Mishap::LostAndHidden),
    };
    Task {
        system: "conversation",
        id: format!("ticket-{act}"),
        kind: "reply",
        session: None,
        disposition: Disposition::Rerunnable,
        errand: Errand {
            title: format!("open a ticket for {person}'s broken link"),
            steps: steps(&[("reproduce", 2)]),
            needs: None,
            effect: Some(effect),
        },
    }
}

fn booking(act: u32, dice: &mut Dice) -> Task {
    let person = *dice.pick(&PEOPLE);
    Task {
        system: "conversation",
        id: format!("booking-{act}"),
        kind: "calendar",
        session: None,
        disposition: Disposition::Rerunnable,
        errand: Errand {
            title: format!("find a date for {person}'s review"),
            steps: steps(&[("read", 1), ("book", 2)]),
            needs: Some(Need::Login {
                reference: format!("calendar-login-{act}"),
                account: "the shared calendar".to_owned(),
            }),
            effect: None,
        },
    }
}

fn deploy(act: u32, dice: &mut Dice) -> Task {
    let build = 200 + act * 7 + dice.between(0, 6);
    Task {
        system: "control",
        id: format!("build-{build}"),
        kind: "deploy",
        session: None,
        disposition: Disposition::Rerunnable,
        errand: Errand {
            title: format!("roll out build {build}"),
            steps: steps(&[("check", 1), ("roll out", 4), ("smoke test", 2)]),
            needs: Some(Need::Approval {
                reference: format!("rollout-{act}-{build}"),
                question: format!("Build {build} passed its checks. Roll it out to production?"),
            }),
            effect: None,
        },
    }
}

fn research(act: u32, n: &str, beats: u32, topic: &str) -> Task {
    Task {
        system: "manual",
        id: format!("research-{act}-{n}"),
        kind: "research",
        session: None,
        disposition: Disposition::Rerunnable,
        errand: Errand {
            title: format!("look into {topic}"),
            steps: steps(&[("plan", 1), ("search", beats), ("summarise", 1)]),
            needs: Some(Need::Search),
            effect: None,
        },
    }
}

fn storm(act: u32, topics: &[&str], dice: &mut Dice) -> Vec<Task> {
    let numbered = topics.iter().zip(1..);
    numbered.map(|(topic, n)| research(act, &format!("{n}"), dice.between(1, 3), topic)).collect()
}

fn export(act: u32) -> Task {
    Task {
        system: "manual",
        id: format!("photos-{act}"),
        kind: "export",
        session: None,
        disposition: Disposition::OwnerBound,
        errand: Errand {
            title: "export the photos on Dora's laptop".to_owned(),
            steps: vec![],
            needs: None,
            effect: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn acts(seed: u64) -> Vec<(u32, Cue)> {
        let mut dice = Dice::new(seed);
        (1..=3).flat_map(|number| act(number, &mut dice)).collect()
    }

    #[test]
    fn the_same_seed_plays_the_same_story() {
        assert_eq!(acts(7), acts(7));
        assert_ne!(acts(7), acts(8));
    }

    #[test]
    fn every_act_has_every_trouble_in_time_and_no_identity_comes_twice() {
        let mut dice = Dice::new(3);
        let mut seen = BTreeSet::new();
        for number in 1..=5 {
            let cues = act(number, &mut dice);
            assert!(cues.is_sorted_by_key(|(beat, _)| *beat));
            assert!(cues.iter().all(|(beat, _)| *beat < ACT));
            let mut needs = BTreeSet::new();
            for (_, cue) in &cues {
                let tasks = match cue {
                    Cue::Comes(task) => std::slice::from_ref(task),
                    Cue::PowerCut(task) => {
                        needs.insert("power");
                        std::slice::from_ref(task)
                    }
                    Cue::LidClosed(task) => {
                        needs.insert("lid");
                        std::slice::from_ref(task)
                    }
                    Cue::TooManyRequests(tasks, _) => {
                        needs.insert("storm");
                        tasks
                    }
                };
                for task in tasks {
                    assert!(seen.insert((task.system, task.id.clone())), "{task:?}");
                    match task.errand.needs {
                        Some(Need::Approval { .. }) => needs.insert("approval"),
                        Some(Need::Login { .. }) => needs.insert("login"),
                        Some(Need::Search) | None => false,
                    };
                    match task.errand.effect.as_ref().map(|effect| (effect.mishap, &effect.approver)) {
                        Some((Some(Mishap::Lost), _)) => needs.insert("lost"),
                        Some((Some(Mishap::LostAndHidden), _)) => needs.insert("hidden"),
                        Some((None, Some(approver))) if approver == "ana" => needs.insert("payment"),
                        Some((None, _)) | None => false,
                    };
                }
            }
            assert_eq!(
                needs,
                BTreeSet::from(["approval", "hidden", "lid", "login", "lost", "payment", "power", "storm"])
            );
        }
    }

    #[test]
    fn the_first_thing_to_answer_comes_at_once() {
        let cues = act(1, &mut Dice::new(9));
        let asks = |cue: &Cue| {
            matches!(cue, Cue::Comes(Task { errand: Errand { needs: Some(Need::Approval { .. }), .. }, .. }))
        };
        assert!(cues.iter().any(|(beat, cue)| *beat == 1 && asks(cue)));
        let yours = |cue: &Cue| match cue {
            Cue::Comes(task) => {
                task.errand.effect.as_ref().and_then(|effect| effect.approver.as_deref()) == Some("you")
            }
            Cue::PowerCut(_) | Cue::LidClosed(_) | Cue::TooManyRequests(..) => false,
        };
        assert_eq!(cues.iter().filter(|(_, cue)| yours(cue)).count(), 1);
        assert!(!act(2, &mut Dice::new(9)).iter().any(|(_, cue)| yours(cue)), "they do not pile up");
    }
}
