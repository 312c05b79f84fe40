//! Credentials: kept once, found by the hash of their secret, listed, revoked.

use tenure_core::{Code, CredentialId, action::Tenants, payload::Digest};

use super::{Bed, refused};
use crate::{Credential, CredentialKind, NewCredential};

fn new(name: &str) -> NewCredential {
    NewCredential {
        name: name.to_owned(),
        kind: CredentialKind::Machine,
        hash: Digest::of(name),
        scopes: vec!["view".to_owned(), "work".to_owned()],
        tenants: Tenants::Only(vec!["default".to_owned(), "äcme".to_owned()]),
        expires_at: None,
        created_by: "ada".to_owned(),
    }
}

pub async fn a_secret_is_kept_once(bed: &mut Bed) {
    let wanted = NewCredential { expires_at: Some(bed.now() + 1_000), ..new("robot") };
    let kept = bed.ledger.add_credential(&wanted).await.unwrap();
    let expected = Credential {
        id: kept.id,
        name: "robot".to_owned(),
        kind: CredentialKind::Machine,
        hash: Digest::of("robot"),
        scopes: wanted.scopes.clone(),
        tenants: wanted.tenants.clone(),
        created_at: bed.now(),
        expires_at: wanted.expires_at,
        revoked_at: None,
        created_by: "ada".to_owned(),
    };
    assert_eq!(kept, expected);
    assert_eq!(bed.ledger.credential(wanted.hash).await.unwrap(), Some(expected.clone()));
    assert_eq!(bed.ledger.add_credential(&wanted).await.unwrap(), expected, "the same again is the same");
    let other = NewCredential { tenants: Tenants::All, ..wanted };
    assert_eq!(refused(bed.ledger.add_credential(&other).await), Code::IdempotencyMismatch);
    assert_eq!(bed.ledger.credential(Digest::of("unknown")).await.unwrap(), None);
    assert!(kept.is_valid(bed.now()));
    assert!(!kept.is_valid(bed.now() + 1_000));
}

pub async fn credentials_are_listed_and_revoked(bed: &mut Bed) {
    let mut ids = Vec::new();
    for name in ["one", "two", "three"] {
        let person = NewCredential { kind: CredentialKind::Person, tenants: Tenants::All, ..new(name) };
        ids.push(bed.ledger.add_credential(&person).await.unwrap().id);
    }
    let two = bed.ledger.revoke_credential(ids[1], None).await.unwrap();
    assert_eq!(two.revoked_at, Some(bed.now()));
    assert!(!two.is_valid(bed.now()));
    bed.clock.advance(1_000);
    assert_eq!(bed.ledger.revoke_credential(ids[1], None).await.unwrap(), two, "the first time counts");
    let page = bed.ledger.credentials(None, 2).await.unwrap();
    assert_eq!(page.iter().map(|one| one.id).collect::<Vec<_>>(), [ids[2], ids[1]], "newest first");
    assert_eq!(page[1], two);
    assert_eq!((page[0].kind, &page[0].tenants), (CredentialKind::Person, &Tenants::All));
    let rest = bed.ledger.credentials(Some(ids[1]), 2).await.unwrap();
    assert_eq!(rest.iter().map(|one| one.id).collect::<Vec<_>>(), [ids[0]]);
    let unknown = CredentialId(uuid::Uuid::now_v7());
    assert_eq!(refused(bed.ledger.revoke_credential(unknown, None).await), Code::NotFound);
}

pub async fn malformed_credentials_are_refused(bed: &mut Bed) {
    for wrong in [
        NewCredential { name: String::new(), ..new("x") },
        NewCredential { name: "a\0b".to_owned(), ..new("x") },
        NewCredential { scopes: vec!["x".to_owned(); 51], ..new("x") },
        NewCredential { tenants: Tenants::Only(vec!["a\0b".to_owned()]), ..new("x") },
        NewCredential { expires_at: Some(bed.now()), ..new("x") },
        NewCredential { created_by: "x".repeat(201), ..new("x") },
    ] {
        assert_eq!(refused(bed.ledger.add_credential(&wrong).await), Code::Invalid, "{wrong:?}");
    }
    assert!(bed.ledger.credentials(None, 10).await.unwrap().is_empty());
}

pub async fn the_last_that_opens_everything_stays(bed: &mut Bed) {
    let opener =
        |name: &str| NewCredential { kind: CredentialKind::Person, tenants: Tenants::All, ..new(name) };
    let add = async |new: NewCredential| bed.ledger.add_credential(&new).await.unwrap().id;
    let first = add(opener("first")).await;
    let others = [
        add(NewCredential { kind: CredentialKind::Machine, ..opener("machine") }).await,
        add(NewCredential { tenants: Tenants::Only(vec!["default".to_owned()]), ..opener("bound") }).await,
        add(NewCredential { scopes: vec!["view".to_owned()], ..opener("viewer") }).await,
        add(NewCredential { expires_at: Some(bed.now() + 1_000), ..opener("passing") }).await,
    ];
    bed.clock.advance(1_000);
    let revoke = async |id| bed.ledger.revoke_credential(id, Some("work")).await;
    assert_eq!(refused(revoke(first).await), Code::IllegalState, "none of the others opens everything");
    let second = bed.ledger.add_credential(&opener("second")).await.unwrap().id;
    revoke(first).await.unwrap();
    assert!(revoke(first).await.unwrap().revoked_at.is_some(), "done again, it is still done");
    assert_eq!(refused(revoke(second).await), Code::IllegalState);
    for other in others {
        revoke(other).await.unwrap();
    }
    assert_eq!(refused(revoke(CredentialId(uuid::Uuid::now_v7())).await), Code::NotFound);
    bed.ledger.revoke_credential(second, None).await.unwrap();
}
