//! Credentials: stored once, found by the hash of their secret, listed, revoked.

use tenure_core::{
    Actor, Code, CredentialId, PrincipalId,
    action::{Kinds, Tenants},
    payload::Digest,
};

use super::{Bed, refused};
use crate::{Credential, NewCredential, Principal, PrincipalKind, Revocation};

fn ada() -> Actor {
    Actor::person("p_1").named("ada")
}

fn person(name: &str) -> Principal {
    Principal::new(PrincipalKind::Person, name)
}

fn new(name: &str) -> NewCredential {
    NewCredential {
        name: name.to_owned(),
        principal: Principal::new(PrincipalKind::Machine, name),
        hash: Digest::of(name),
        scopes: vec!["view".to_owned(), "work".to_owned()],
        tenants: Tenants::Only(vec!["default".to_owned(), "äcme".to_owned()]),
        kinds: Kinds::All,
        worker: None,
        expires_at: None,
        created_by: ada(),
    }
}

pub async fn a_secret_is_kept_once(bed: &mut Bed) {
    let wanted = NewCredential {
        expires_at: Some(bed.now() + 1_000),
        kinds: Kinds::Only(vec!["mail".to_owned()]),
        worker: Some("w1".to_owned()),
        ..new("robot")
    };
    let kept = bed.ledger.add_credential(&wanted).await.unwrap();
    let expected = Credential {
        id: kept.id,
        name: "robot".to_owned(),
        principal: wanted.principal.clone(),
        hash: Digest::of("robot"),
        scopes: wanted.scopes.clone(),
        tenants: wanted.tenants.clone(),
        kinds: wanted.kinds.clone(),
        worker: wanted.worker.clone(),
        created_at: bed.now(),
        created_by: ada(),
        expires_at: wanted.expires_at,
        revoked: None,
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
        let person = NewCredential { principal: person(name), tenants: Tenants::All, ..new(name) };
        ids.push(bed.ledger.add_credential(&person).await.unwrap().id);
    }
    let two = bed.ledger.revoke_credential(ids[1], &ada(), "lost", None).await.unwrap();
    let revoked = two.revoked.clone().unwrap();
    assert_eq!(revoked, Revocation { at: bed.now(), by: ada(), reason: "lost".to_owned() });
    assert_eq!(revoked.by.label(), "ada");
    assert_eq!(bed.ledger.revoked_among(&ids).await.unwrap(), [ids[1]]);
    for nothing in ["", "  "] {
        let reasonless = bed.ledger.revoke_credential(ids[0], &ada(), nothing, None).await;
        assert_eq!(refused(reasonless), Code::ReasonMissing);
    }
    assert!(!two.is_valid(bed.now()));
    bed.clock.advance(1_000);
    assert_eq!(
        bed.ledger.revoke_credential(ids[1], &ada(), "lost", None).await.unwrap(),
        two,
        "the first time counts"
    );
    let page = bed.ledger.credentials(None, 2).await.unwrap();
    assert_eq!(page.iter().map(|one| one.id).collect::<Vec<_>>(), [ids[2], ids[1]], "newest first");
    assert_eq!(page[1], two);
    assert_eq!((page[0].principal.kind, &page[0].tenants), (PrincipalKind::Person, &Tenants::All));
    let rest = bed.ledger.credentials(Some(ids[1]), 2).await.unwrap();
    assert_eq!(rest.iter().map(|one| one.id).collect::<Vec<_>>(), [ids[0]]);
    let unknown = CredentialId(uuid::Uuid::now_v7());
    assert_eq!(refused(bed.ledger.revoke_credential(unknown, &ada(), "lost", None).await), Code::NotFound);
}

pub async fn credentials_of_one_principal_are_found_together(bed: &mut Bed) {
    let (ana, namesake) = (person("ana"), person("ana"));
    let of = |name: &str, principal: &Principal| NewCredential { principal: principal.clone(), ..new(name) };
    let phone = bed.ledger.add_credential(&of("phone", &ana)).await.unwrap();
    let other = bed.ledger.add_credential(&of("other", &namesake)).await.unwrap();
    let laptop = bed.ledger.add_credential(&of("laptop", &ana)).await.unwrap();
    assert_eq!(phone.principal.actor(), laptop.principal.actor(), "two credentials, one person");
    assert_ne!(phone.principal.actor(), other.principal.actor(), "one name, two persons");
    assert_eq!(bed.ledger.credentials_of(ana.id).await.unwrap(), [laptop, phone], "newest first");
    assert_eq!(bed.ledger.credentials_of(namesake.id).await.unwrap(), [other]);
    let nobody = PrincipalId(uuid::Uuid::now_v7());
    assert_eq!(bed.ledger.credentials_of(nobody).await.unwrap(), []);
}

pub async fn credentials_are_counted_by_the_tenants_they_reach(bed: &mut Bed) {
    let only = |names: &[&str]| Tenants::Only(names.iter().map(|&name| name.to_owned()).collect());
    let of = |name: &str, tenants: Tenants| NewCredential { tenants, ..new(name) };
    for (name, tenants) in [("a", only(&["a"])), ("both", only(&["b", "a"])), ("b", only(&["b\"'"]))] {
        bed.ledger.add_credential(&of(name, tenants)).await.unwrap();
    }
    let every = bed.ledger.add_credential(&of("every", Tenants::All)).await.unwrap();
    let kinds = Kinds::Only(vec!["mail".to_owned()]);
    let narrow = NewCredential { kinds, ..of("narrow", only(&["a"])) };
    let narrow = bed.ledger.add_credential(&narrow).await.unwrap();
    let counted = async |tenant| bed.ledger.count_credentials(tenant).await.unwrap();
    assert_eq!((counted(Some("a")).await, counted(Some("b")).await, counted(Some("b\"'")).await), (3, 1, 1));
    assert_eq!((counted(Some("c")).await, counted(None).await), (0, 5));
    for id in [every.id, narrow.id] {
        bed.ledger.revoke_credential(id, &ada(), "no longer needed", None).await.unwrap();
    }
    assert_eq!((counted(Some("a")).await, counted(None).await), (2, 3));
}

pub async fn malformed_credentials_are_refused(bed: &mut Bed) {
    for wrong in [
        NewCredential { name: String::new(), ..new("x") },
        NewCredential { name: "a\0b".to_owned(), ..new("x") },
        NewCredential { scopes: vec!["x".to_owned(); 51], ..new("x") },
        NewCredential { tenants: Tenants::Only(vec!["a\0b".to_owned()]), ..new("x") },
        NewCredential { kinds: Kinds::Only(vec![String::new()]), ..new("x") },
        NewCredential { worker: Some("a\0b".to_owned()), ..new("x") },
        NewCredential { principal: person(""), ..new("x") },
        NewCredential { expires_at: Some(bed.now()), ..new("x") },
        NewCredential { created_by: Actor::person("x".repeat(201)), ..new("x") },
    ] {
        assert_eq!(refused(bed.ledger.add_credential(&wrong).await), Code::Invalid, "{wrong:?}");
    }
    assert!(bed.ledger.credentials(None, 10).await.unwrap().is_empty());
}

pub async fn the_last_that_opens_everything_stays(bed: &mut Bed) {
    let opener = |name: &str| NewCredential { principal: person(name), tenants: Tenants::All, ..new(name) };
    let add = async |new: NewCredential| bed.ledger.add_credential(&new).await.unwrap().id;
    let first = add(opener("first")).await;
    let others = [
        add(NewCredential { principal: new("machine").principal, ..opener("machine") }).await,
        add(NewCredential { tenants: Tenants::Only(vec!["default".to_owned()]), ..opener("bound") }).await,
        add(NewCredential { scopes: vec!["view".to_owned()], ..opener("viewer") }).await,
        add(NewCredential { expires_at: Some(bed.now() + 1_000), ..opener("passing") }).await,
    ];
    let bound = Kinds::Only(vec!["mail".to_owned()]);
    let others = others.into_iter().chain([
        add(NewCredential { kinds: bound, ..opener("of one kind") }).await,
        add(NewCredential { worker: Some("w1".to_owned()), ..opener("of one worker") }).await,
    ]);
    bed.clock.advance(1_000);
    let every = new("x").scopes;
    let revoke = async |id| bed.ledger.revoke_credential(id, &ada(), "no longer needed", Some(&every)).await;
    assert_eq!(refused(revoke(first).await), Code::IllegalState, "none of the others opens everything");
    let second = bed.ledger.add_credential(&opener("second")).await.unwrap().id;
    revoke(first).await.unwrap();
    assert!(revoke(first).await.unwrap().revoked.is_some(), "done again, it is still done");
    assert_eq!(refused(revoke(second).await), Code::IllegalState);
    for other in others {
        revoke(other).await.unwrap();
    }
    assert_eq!(refused(revoke(CredentialId(uuid::Uuid::now_v7())).await), Code::NotFound);
    bed.ledger.revoke_credential(second, &ada(), "the end", None).await.unwrap();
}
