//! The rights of credentials, and their limits.

use std::{fs, os::unix::fs::PermissionsExt};

use tenure_store::{Options, PrincipalKind};

use super::*;

async fn ledger() -> Ledger {
    Ledger::open_memory(Options { sweep: false, ..Options::default() }).await.unwrap()
}

async fn admin(ledger: &Ledger) -> (Auth, Arc<Authenticated>) {
    let secret = Secret::generate().unwrap();
    assert_eq!(AdminToken::Given(secret.clone()).ensure(ledger).await.unwrap(), FirstStart::Given);
    let auth = Auth::new(ledger.clone());
    let session = auth.identify(secret.reveal(), None).await.unwrap().unwrap();
    (auth, session)
}

fn token(kind: PrincipalKind, scopes: &[Scope]) -> NewToken {
    let scopes = scopes.iter().copied().collect();
    NewToken {
        name: "t".into(),
        owner: Owner::New(kind),
        scopes,
        tenants: Tenants::All,
        kinds: Kinds::All,
        worker: None,
        expires_at: None,
    }
}

#[tokio::test]
async fn the_first_start_leaves_a_private_file_and_only_the_first() {
    let ledger = ledger().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db.token");
    let start = AdminToken::File(path.clone()).ensure(&ledger).await.unwrap();
    assert_eq!(start, FirstStart::Written(path.clone()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = fs::read_to_string(&path).unwrap();
    let auth = Auth::new(ledger.clone());
    let session = auth.identify(secret.trim(), None).await.unwrap().unwrap();
    assert_eq!((session.principal.kind, session.scopes), (PrincipalKind::Person, Scopes::all()));
    assert_eq!(AdminToken::File(path.clone()).ensure(&ledger).await.unwrap(), FirstStart::No);
    assert_eq!(fs::read_to_string(&path).unwrap(), secret);
}

#[tokio::test]
async fn credentials_of_machines_leave_the_first_start_to_a_person() {
    let ledger = ledger().await;
    assert_eq!(AdminToken::Unmade.ensure(&ledger).await.unwrap(), FirstStart::No);
    assert_eq!(ledger.count_credentials(None).await.unwrap(), 0);
    let auth = Auth::new(ledger.clone());
    let InProcess(program) = InProcess::new(&ledger, "a program").unwrap();
    auth.create(&program, token(PrincipalKind::Machine, &[Scope::Work])).await.unwrap();
    admin(&ledger).await;
    let second = AdminToken::Given(Secret::generate().unwrap()).ensure(&ledger).await.unwrap();
    assert_eq!(second, FirstStart::No);
}

#[tokio::test]
async fn a_token_that_is_easy_to_guess_is_refused() {
    let short = AdminToken::Given(Secret::given("dev".into())).ensure(&ledger().await).await;
    assert!(short.unwrap_err().to_string().contains("openssl rand"));
}

#[tokio::test]
async fn unknown_revoked_and_expired_tokens_are_distinguished() {
    let ledger = ledger().await;
    let (auth, admin) = admin(&ledger).await;
    assert_eq!(auth.identify("tn_nobody", None).await.unwrap().err(), Some(Denied::UnknownToken));
    let (credential, secret) =
        auth.create(&admin, token(PrincipalKind::Machine, &[Scope::View])).await.unwrap();
    let session = auth.identify(secret.reveal(), None).await.unwrap().unwrap();
    assert_eq!(session.require(Scope::View), Ok(()));
    assert_eq!(session.require(Scope::Work), Err(Denied::Scope(Scope::Work)));
    auth.revoke(&admin, credential.id, "lost").await.unwrap();
    assert_eq!(auth.identify(secret.reveal(), None).await.unwrap().err(), Some(Denied::Revoked));

    let soon = NewToken {
        expires_at: Some(wall_clock() + 3_600_000),
        ..token(PrincipalKind::Machine, &[Scope::View])
    };
    let (_, secret) = auth.create(&admin, soon).await.unwrap();
    let session = auth.identify(secret.reveal(), None).await.unwrap().unwrap();
    let past = Authenticated { expires_at: Some(wall_clock()), ..Authenticated::clone(&session) };
    let entry = (Known { session: Arc::new(past), revoked: false }, Instant::now());
    auth.known.lock().unwrap().insert(secret.hash(), entry);
    assert_eq!(auth.identify(secret.reveal(), None).await.unwrap().err(), Some(Denied::Expired));
}

#[test]
fn the_pages_have_every_scope() {
    let http = include_str!("../../../../docs/http.md");
    let security = include_str!("../../../../docs/security.md");
    let head = security.lines().find(|line| line.starts_with("| | `view` |")).unwrap();
    for scope in Scope::ALL {
        assert!(
            http.contains(&format!("\n| `{scope}` | ")),
            "docs/http.md has no row for `{scope}`: add one"
        );
        assert!(
            head.contains(&format!(" `{scope}` |")),
            "docs/security.md has no column for `{scope}`: add one"
        );
    }
}

#[tokio::test]
async fn machines_never_have_the_scopes_of_people() {
    let ledger = ledger().await;
    let (auth, admin) = admin(&ledger).await;
    for scope in [Scope::Approve, Scope::Replay] {
        let refused = auth.create(&admin, token(PrincipalKind::Machine, &[scope])).await.unwrap_err();
        assert!(matches!(refused, Error::Refused(Refusal { code: Code::PersonRequired, .. })));
    }
    let (_, secret) = auth.create(&admin, token(PrincipalKind::Machine, &[Scope::Admin])).await.unwrap();
    let machine = auth.identify(secret.reveal(), None).await.unwrap().unwrap();
    let promoted = auth.create(&machine, token(PrincipalKind::Person, &[Scope::Approve])).await.unwrap_err();
    assert!(matches!(promoted, Error::Refused(Refusal { code: Code::PersonRequired, .. })));
}

#[tokio::test]
async fn a_credential_reaches_no_further_than_its_maker() {
    let ledger = ledger().await;
    let (auth, admin) = admin(&ledger).await;
    let only = |tenants: &[&str]| Tenants::Only(tenants.iter().map(|t| (*t).to_owned()).collect());
    let of = |tenants| NewToken { tenants, ..token(PrincipalKind::Machine, &[Scope::Admin]) };
    let (_, secret) = auth.create(&admin, of(only(&["a", "b"]))).await.unwrap();
    let local = auth.identify(secret.reveal(), None).await.unwrap().unwrap();
    assert!(auth.create(&local, of(only(&["a"]))).await.is_ok());
    for wider in [Tenants::All, only(&["a", "c"]), only(&[])] {
        assert!(auth.create(&local, of(wider)).await.is_err());
    }
    let (foreign, _) = auth.create(&admin, of(only(&["c"]))).await.unwrap();
    assert!(auth.revoke(&local, foreign.id, "lost").await.is_err());
    assert_eq!(auth.list(&local, None, 100).await.unwrap().len(), 2);
    assert_eq!(local.tenant(Some("a")).unwrap(), "a");
    assert_eq!(local.tenant(Some("c")).unwrap_err().code, Code::NotFound);
    assert_eq!(local.tenant(None).unwrap_err().code, Code::Invalid);
    assert_eq!(admin.tenant(None).unwrap(), "default");
}
