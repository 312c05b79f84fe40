//! Two ledgers over one database, as two replicas or processes have it: they never end each other's last admin.
#![cfg(all(feature = "sqlite", feature = "postgres"))]

use tenure_store::{
    CredentialKind, Error, Ledger, NewCredential, Options,
    core::{Code, action::Tenants, payload::Digest},
};

fn admin(name: &str) -> NewCredential {
    NewCredential {
        name: name.to_owned(),
        kind: CredentialKind::Person,
        hash: Digest::of(name),
        scopes: vec!["admin".to_owned()],
        tenants: Tenants::All,
        expires_at: None,
        created_by: "ada".to_owned(),
    }
}

fn options() -> Options {
    Options { sweep: false, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let open = || Ledger::open_sqlite(&file, options());
    end_each_other(&open().await.unwrap(), &open().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres() {
    let url = tokio::task::spawn_blocking(|| tenure_testkit::shared().create_database()).await.unwrap();
    let open = || Ledger::open_postgres(&url, options());
    end_each_other(&open().await.unwrap(), &open().await.unwrap()).await;
}

async fn end_each_other(here: &Ledger, there: &Ledger) {
    for round in 0..30 {
        let one = here.add_credential(&admin(&format!("one-{round}"))).await.unwrap().id;
        let two = here.add_credential(&admin(&format!("two-{round}"))).await.unwrap().id;
        let ended = tokio::join!(
            here.revoke_credential(two, Some("admin")),
            there.revoke_credential(one, Some("admin"))
        );
        let (left, refused) = match ended {
            (Ok(_), Err(refused)) => (one, refused),
            (Err(refused), Ok(_)) => (two, refused),
            other => panic!("one of them stays: {other:?}"),
        };
        assert!(matches!(&refused, Error::Refused(why) if why.code == Code::IllegalState), "{refused}");
        here.revoke_credential(left, None).await.unwrap();
    }
}
