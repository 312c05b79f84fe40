//! Outbound address checks: DNS rebinding, internal addresses, redirects.

use std::{net::SocketAddr, sync::atomic::Ordering, time::Duration};

use tenure_core::model::ErrorClass;
use tenure_server::executor::{CallOutcome, HttpTarget};
use tenure_testkit::{Provider, Reply};

use crate::{
    bed::{NOW, at, call, http, send},
    names::Names,
};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn refused(outcome: CallOutcome) -> String {
    match outcome {
        CallOutcome::Failed { error, unsent: true } if error.class == ErrorClass::Misconfigured => {
            error.message
        }
        other => panic!("{other:?}"),
    }
}

/// A tool whose commands name the URL, like one with webhooks of its users.
fn anywhere() -> HttpTarget {
    HttpTarget { timeout: Duration::from_secs(30), ..HttpTarget::default() }
}

#[tokio::test]
async fn internal_addresses_are_not_called() {
    let inside = Provider::always(Reply::status(200));
    let port = inside.address().port();
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0"] {
        let http = http(anywhere(), Names::new(&[]));
        let why = refused(http.call(&call(&format!("http://{host}:{port}/")), NOW).await);
        assert!(why.contains("not a public address"), "{host}: {why}");
    }
    for target in ["http://169.254.169.254/latest/meta-data", "http://[fd00:ec2::254]/"] {
        refused(http(anywhere(), Names::new(&[])).call(&call(target), NOW).await);
    }
    for target in
        ["ftp://files.example/", "file:///etc/passwd", "gopher://x/", "bob", "", "http://u@127.0.0.1/"]
    {
        refused(http(anywhere(), Names::new(&[])).call(&call(target), NOW).await);
    }
    assert_eq!((inside.calls().len(), inside.connections()), (0, 0));
}

#[tokio::test]
async fn a_name_that_changes_its_mind_after_the_check_reaches_nothing_inside() {
    let inside = Provider::always(Reply::status(200));
    // Public at the first lookup, internal afterwards: a second lookup would be deceived.
    let public: SocketAddr = "192.0.2.1:9".parse().unwrap();
    let names = Names::new(&[("rebind.example", &[public, inside.address()])]);
    let mut target = anywhere();
    // The first address is in a documentation network, where nothing listens: allowed, so that the check
    // passes.
    target.networks = vec!["192.0.2.0/24".parse().unwrap()];
    target.timeout = Duration::from_millis(400);
    let url = format!("http://rebind.example:{}/", inside.address().port());
    let http = http(target, names.clone());
    let outcome = http.call(&call(&url), NOW).await;
    assert!(matches!(outcome, CallOutcome::Failed { unsent: true, .. }), "{outcome:?}");
    assert_eq!(names.asked.load(Ordering::Relaxed), 1, "resolved once, and connected to what was checked");
    // Resolved again for the next call, it is checked again.
    let why = refused(http.call(&call(&url), NOW).await);
    assert!(why.contains("127.0.0.1"), "{why}");
    assert_eq!((inside.calls().len(), inside.connections()), (0, 0));
}

#[tokio::test]
async fn a_redirect_is_judged_like_the_first_url() {
    let inside = Provider::always(Reply::status(200));
    let secret = inside.url("/secret");
    let outside = Provider::always(Reply::redirect(307, &secret));
    let public: SocketAddr = outside.address();
    // Only the outer provider's name may be called, whichever network it is in.
    let names = Names::new(&[("hooks.example", &[public])]);
    let mut target = anywhere();
    target.networks = vec!["127.0.0.0/8".parse().unwrap()];
    target.hosts = vec!["hooks.example".into()];
    let url = format!("http://hooks.example:{}/", public.port());
    let why = refused(http(target, names).call(&call(&url), NOW).await);
    assert!(why.contains("not among the tool's hosts"), "{why}");
    assert_eq!((outside.calls().len(), inside.connections()), (1, 0));
}

#[tokio::test]
async fn a_redirect_to_another_scheme_or_nowhere_is_refused() {
    for to in ["file:///etc/passwd", "//other.example/", "", "http://169.254.169.254/"] {
        let provider = Provider::always(Reply::redirect(308, to));
        refused(send(at(&provider, "/")).await);
        assert_eq!(provider.calls().len(), 1, "{to}");
    }
}

#[tokio::test]
async fn a_redirect_that_keeps_the_call_is_followed_and_credentials_stay_home() {
    let other = Provider::always(Reply::status(200));
    let to = other.url("/moved");
    let provider = Provider::start(move |call| match call.path.as_str() {
        "/" => Reply::redirect(307, "/there"),
        _ => Reply::redirect(308, &to),
    });
    let mut target = at(&provider, "/");
    target.headers = vec![("authorization".parse().unwrap(), "Bearer t".parse().unwrap())];
    target.secret = Some(SECRET.parse().unwrap());
    assert!(matches!(send(target).await, CallOutcome::Succeeded(_)));
    let (home, moved) = (provider.calls(), other.calls());
    assert_eq!(home.iter().map(|call| call.path.as_str()).collect::<Vec<_>>(), ["/", "/there"]);
    for name in ["authorization", "webhook-signature"] {
        assert!(home.iter().all(|call| call.header(name).is_some()), "{name}");
        assert_eq!(moved[0].header(name), None);
    }
    assert_eq!(moved[0].method, "POST");
    assert_eq!(moved[0].body, home[0].body);
}

#[tokio::test]
async fn a_command_that_names_the_port_or_plain_http_is_sent_no_credentials() {
    let provider = Provider::always(Reply::status(200));
    let mut target = at(&provider, "/");
    (target.url, target.hosts) = (None, vec!["127.0.0.1".into()]);
    target.headers = vec![("authorization".parse().unwrap(), "Bearer t".parse().unwrap())];
    target.secret = Some(SECRET.parse().unwrap());
    let named = provider.url("/other-service");
    http(target, Names::new(&[])).call(&call(&named), NOW).await;
    let calls = provider.calls();
    assert_eq!((calls[0].header("authorization"), calls[0].header("webhook-signature")), (None, None));
}

#[tokio::test]
async fn a_redirect_that_changes_the_call_is_uncertain_and_not_followed() {
    for status in [301, 302, 303] {
        let provider = Provider::always(Reply::redirect(status, "/elsewhere"));
        assert!(matches!(send(at(&provider, "/")).await, CallOutcome::Uncertain(_)), "{status}");
        assert_eq!(provider.calls().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn redirects_are_bounded() {
    let provider = Provider::always(Reply::redirect(307, "/again"));
    let why = refused(send(at(&provider, "/")).await);
    assert!(why.contains("more than 3 times"), "{why}");
    assert_eq!(provider.calls().len(), 4);
}
