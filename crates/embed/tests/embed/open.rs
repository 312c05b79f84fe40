//! Opening: the initial state, the program's identity, and which credentials are created.

use std::{error::Error as _, fs};

use serde_json::json;
use tenure_embed::{
    OpenError,
    prelude::*,
    wire::{ApproveCommand, Code, CommandState, Page, PageQuery, Token, WorkEventQuery},
};

use crate::bed::{LONG, Place, brief, on_both_databases};

const SECRET: &str = "a person's secret, for tests";

async fn tokens(client: &Client) -> Page<Token> {
    client.tokens(&PageQuery::default()).await.unwrap()
}

async fn it_works_without_a_token(place: Place) {
    let tenure = Tenure::open(&place.db).await.unwrap();
    let id = tenure.ingest(&brief("a")).await.unwrap().work.id;
    let mut ended = None;
    let stop = async { ended = Some(tenure.work_at_end(&id, LONG).await.unwrap()) };
    let handler = |job: Job| async move { job.input::<String>() };
    let report = worker::run(tenure.client(), worker::Options::new("w"), handler, stop).await;
    assert!(report.deferred.is_empty(), "{report:?}");
    let ended = ended.unwrap();
    assert_eq!((ended.state.as_str(), ended.result), ("succeeded", Some(json!("a"))));
    assert_eq!(tokens(&tenure).await.items, [], "there is no credential");
    assert_eq!(tenure.verify().await.unwrap().faults, []);
    tenure.close().await.unwrap();
    assert_eq!(place.other_files(), [""; 0]);
}

async fn a_program_is_the_same_machine_at_every_start(place: Place) {
    let mut actors = Vec::new();
    for (run, name) in ["bridge", "bridge", "scheduler"].iter().enumerate() {
        let tenure = Tenure::builder(&place.db).name(name).open().await.unwrap();
        let id = tenure.ingest(&brief(&run.to_string())).await.unwrap().work.id;
        let events = tenure.work_events(&id, &WorkEventQuery::default()).await.unwrap();
        actors.push(events.items[0].actor.clone());
        tenure.close().await.unwrap();
    }
    assert_eq!(actors[0], actors[1]);
    assert_ne!(actors[0].id, actors[2].id);
    assert_eq!(actors[2].name.as_deref(), Some("scheduler"));
}

async fn only_a_person_approves(place: Place) {
    let builder = || Tenure::builder(&place.db).admin_token(SECRET);
    let tenure = builder().open().await.unwrap();
    let person = tenure.with_token(SECRET);
    assert_eq!(tokens(&person).await.items.len(), 1);

    let Recorded { leased, .. } = tenure.holder("w").ingest(brief("a")).await.unwrap();
    let leased = leased.unwrap();
    let transfer = Intent::new("send_money", "bob", json!({ "euros": 5 }));
    let blocked = leased.command(transfer, |_| async { panic!("not approved") }).await.unwrap();
    let Fate::Blocked(command) = blocked else {
        panic!("an undeclared tool needs a person's approval");
    };
    let approve = ApproveCommand { reason: "agreed".to_owned(), seal: command.seal.clone() };
    let refused = tenure.approve_command(&command.id, &approve).await.unwrap_err();
    assert_eq!(refused.code(), Some(Code::Forbidden), "{refused}");
    let approved = person.approve_command(&command.id, &approve).await.unwrap();
    assert_eq!(approved.state, CommandState::Approved);
    let stranger = tenure.with_token("somebody's guess").work(leased.id()).await.unwrap_err();
    assert_eq!(stranger.code(), Some(Code::Unauthorized));
    drop(leased);
    tenure.close().await.unwrap();

    // At the next start the credential exists, and is not created again.
    let tenure = builder().open().await.unwrap();
    assert_eq!(tokens(&tenure.with_token(SECRET)).await.items.len(), 1);
    tenure.close().await.unwrap();
    assert_eq!(place.other_files(), [""; 0]);
}

async fn tools_policies_and_settings_are_configured(place: Place) {
    let config =
        "[tools.look_up]\nrisk = \"low\"\n[tools.wipe]\nrisk = \"low\"\n[quotas]\nopen_works = 1000\n";
    let policy = "permit (principal, action, resource);\n\
        @reason(\"never from here\") forbid (principal, action == Action::\"wipe\", resource);";
    let builder = Tenure::builder(&place.db).config(config).policy("house rules", policy);
    let tenure = builder.open().await.unwrap();
    let Recorded { leased, .. } = tenure.holder("w").ingest(brief("a")).await.unwrap();
    let mut leased = leased.unwrap();
    let found = leased
        .command(Intent::new("look_up", "bob", json!({})), |_| async { Ok(Evidence::id("1")) })
        .await
        .unwrap();
    assert!(matches!(found, Fate::Happened(_)), "{found:?}");
    let Fate::Blocked(wiped) =
        leased.command(Intent::new("wipe", "disk", json!({})), |_| async { panic!() }).await.unwrap()
    else {
        panic!("it is forbidden")
    };
    assert!(wiped.decision.reasons.iter().any(|reason| reason.contains("never from here")), "{wiped:?}");
    leased.release("enough").await.unwrap();
    tenure.close().await.unwrap();
}

on_both_databases!(
    it_works_without_a_token,
    a_program_is_the_same_machine_at_every_start,
    only_a_person_approves,
    tools_policies_and_settings_are_configured,
);

#[tokio::test]
async fn a_token_file_is_written_on_request() {
    let place = Place::sqlite();
    let file = format!("{}.token", place.db);
    let tenure = Tenure::builder(&place.db).admin_token_file(&file).open().await.unwrap();
    assert_eq!(place.other_files(), ["ledger.db.token"]);
    let secret = fs::read_to_string(&file).unwrap();
    assert_eq!(tokens(&tenure.with_token(secret.trim())).await.items.len(), 1);
    tenure.close().await.unwrap();
}

#[tokio::test]
async fn a_configuration_may_be_a_file() {
    let place = Place::sqlite();
    let file = format!("{}.toml", place.db);
    fs::write(&file, "db = \"elsewhere.db\"\n[quotas]\nopen_works = 1\n").unwrap();
    let tenure = Tenure::builder(&place.db).config_file(&file).open().await.unwrap();
    tenure.ingest(&brief("a")).await.unwrap();
    tenure.close().await.unwrap();
    assert!(fs::metadata(&place.db).is_ok(), "the builder decides where the ledger is");
}

#[tokio::test]
async fn errors_name_their_cause() {
    let place = Place::sqlite();
    let open = |builder: tenure_embed::Builder| async { builder.open().await.err().unwrap() };
    let mistake = open(Tenure::builder(&place.db).config("[tools.mail]\nrisk = \"tiny\"\n")).await;
    assert!(matches!(mistake, OpenError::Config(_)), "{mistake:?}");
    assert!(mistake.source().is_some() && mistake.to_string().contains("tiny"), "{mistake}");
    let policy = open(Tenure::builder(&place.db).policy("house rules", "permit everything;")).await;
    assert!(policy.to_string().starts_with("house rules"), "{policy}");
    let nowhere = open(Tenure::builder("/nowhere/ledger.db")).await;
    assert!(matches!(nowhere, OpenError::Start(_)) && nowhere.source().is_some(), "{nowhere:?}");
    let short = open(Tenure::builder(&place.db).admin_token("guess")).await;
    assert!(short.to_string().contains("16 characters"), "{short}");
}
