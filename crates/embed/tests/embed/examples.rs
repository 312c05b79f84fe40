//! Every example works as described, also when it is run again.

use crate::bed::Place;

#[allow(dead_code)]
#[path = "../../examples/effect.rs"]
mod effect;
#[allow(dead_code)]
#[path = "../../examples/existing_loop.rs"]
mod existing_loop;
#[allow(dead_code)]
#[path = "../../examples/postgres.rs"]
mod postgres;
#[allow(dead_code)]
#[path = "../../examples/worker.rs"]
mod worker;

#[tokio::test]
async fn a_worker() {
    let place = Place::sqlite();
    for _run in 0..2 {
        let done = worker::run(&place.db).await.unwrap();
        let comments: Vec<_> = done.iter().map(|reviewed| reviewed.comment.as_str()).collect();
        let expected = [7, 8, 9].map(|pr| format!("pull request {pr} looks right to me"));
        assert_eq!(comments, expected);
    }
}

#[tokio::test]
async fn an_existing_loop() {
    let place = Place::sqlite();
    let said = existing_loop::run(&place.db).await.unwrap();
    assert_eq!(said.len(), 3);
    assert!(said[..2].iter().all(|line| line.starts_with("Succeeded")), "{said:?}");
    assert_eq!(said[2], "m-1: succeeded already");
    let said = existing_loop::run(&place.db).await.unwrap();
    assert!(said.iter().all(|line| line.ends_with("succeeded already")), "{said:?}");
}

#[tokio::test]
async fn an_effect_with_an_approval() {
    let sent = effect::run(&Place::sqlite().db).await.unwrap();
    assert!(sent.mail.as_ref().is_some_and(|id| id.starts_with("message with key ")), "{sent:?}");
}

#[tokio::test]
async fn two_programs_on_one_postgresql() {
    let said = postgres::run(&Place::postgres().await.db).await.unwrap();
    assert_eq!(said, "why is the sky blue? because of the air");
}
