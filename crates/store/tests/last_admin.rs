//! Two ledgers over one database, as two replicas or processes have it: they never end each other's last admin.
#![cfg(all(feature = "sqlite", feature = "postgres"))]

use tenure_store::{
    Error, Ledger, NewCredential, Options, Principal, PrincipalKind,
    core::{
        Actor, Code,
        action::{Kinds, Tenants},
        payload::Digest,
    },
};

fn ada() -> Actor {
    Actor::person("ada")
}

fn admin(name: &str) -> NewCredential {
    NewCredential {
        name: name.to_owned(),
        principal: Principal::new(PrincipalKind::Person, name),
        hash: Digest::of(name),
        scopes: vec!["admin".to_owned()],
        tenants: Tenants::All,
        kinds: Kinds::All,
        worker: None,
        expires_at: None,
        created_by: ada(),
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
    let (ada, every) = (ada(), ["admin".to_owned()]);
    for round in 0..30 {
        let one = here.add_credential(&admin(&format!("one-{round}"))).await.unwrap().id;
        let two = here.add_credential(&admin(&format!("two-{round}"))).await.unwrap().id;
        let ended = tokio::join!(
            here.revoke_credential(two, &ada, "no longer needed", Some(&every)),
            there.revoke_credential(one, &ada, "no longer needed", Some(&every))
        );
        let (left, refused) = match ended {
            (Ok(_), Err(refused)) => (one, refused),
            (Err(refused), Ok(_)) => (two, refused),
            other => panic!("one of them stays: {other:?}"),
        };
        assert!(matches!(&refused, Error::Refused(why) if why.code == Code::IllegalState), "{refused}");
        here.revoke_credential(left, &ada, "no longer needed", None).await.unwrap();
    }
}
