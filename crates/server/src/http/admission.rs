//! Admission: the checks before every route. The request needs an allowed host and origin, a genuine access
//! token with the scope that the route names, and must be within the limits. A route that no rule allows is
//! denied.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    body::HttpBody,
    extract::{ConnectInfo, MatchedPath, Request, State},
    http::{HeaderMap, HeaderValue, Method, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tenure_api::wire::{self, Code};
use tenure_core::{CredentialId, action::Kinds};
use tenure_store::{
    Error,
    fair::{self, Call, Fair, Turn},
};
use tracing::Instrument;

use super::{
    App, Problem,
    batch::{self, InBatch},
    contract::{Access, Contract, DRY_RUN, Rule},
    extract::BODY_MAX,
};
use crate::{
    auth::{Authenticated, Denied, InProcess},
    body_permit,
    config::{Live, Rate},
    quotas::InUse,
    rate::KeyedBuckets,
    tools::RateLimit,
    traces,
};

#[derive(Clone)]
pub(crate) struct Admission {
    pub app: Arc<App>,
    pub contract: Arc<Contract>,
}

/// The configured limits: who may connect, and how often.
pub struct AdmissionLimits {
    /// The address the daemon listens on; none when the router is used in process.
    listen: Option<SocketAddr>,
    /// When rates are counted from.
    since: Instant,
    buckets: Mutex<KeyedBuckets<CredentialId>>,
    bodies: Arc<Fair>,
    reads: Arc<Fair>,
    answers: Arc<Fair>,
}

/// KiB of request bodies read at once, in total and for one tenant: a body stays in memory, parsed, until its
/// response is ready.
const BODIES_KIB: usize = 64 * 1024;
const BODIES_OF_A_TENANT_KIB: usize = BODIES_KIB / 2;
/// Reads answered at once, in total and for one tenant: serializing a long list costs as much as finding it.
const READS: usize = 8;
const READS_OF_A_TENANT: usize = READS / 2;
/// KiB of responses in memory at once, in total and for one tenant, until the client has read them. Shorter
/// responses are bounded by the request quota alone.
const ANSWERS_KIB: usize = 64 * 1024;
const ANSWERS_OF_A_TENANT_KIB: usize = ANSWERS_KIB / 2;
const SHORT: u64 = 16 * 1024;
/// How long a request waits for capacity or its turn, and how long its response waits for memory.
const TURN_WITHIN: Duration = Duration::from_secs(5);
const ROOM_WITHIN: Duration = Duration::from_secs(2);

impl AdmissionLimits {
    pub fn new(listen: Option<SocketAddr>, rate: Rate) -> Self {
        Self {
            listen,
            since: Instant::now(),
            buckets: Mutex::new(KeyedBuckets::new(limit(rate))),
            bodies: Fair::new(BODIES_KIB, BODIES_OF_A_TENANT_KIB),
            reads: Fair::new(READS, READS_OF_A_TENANT),
            answers: Fair::new(ANSWERS_KIB, ANSWERS_OF_A_TENANT_KIB),
        }
    }

    /// A new rate starts with full buckets.
    pub fn set_rate(&self, rate: Rate) {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).set_limit(limit(rate));
    }

    fn check_rate(&self, id: CredentialId) -> Result<(), Problem> {
        let now = self.since.elapsed();
        let taken = self.buckets.lock().unwrap_or_else(PoisonError::into_inner).take(id, now);
        taken.map_err(|wait| {
            let detail = "Too many requests with this token. Wait for `Retry-After`, or send batches.";
            Problem::later(Code::RateLimited, detail, wait)
        })
    }

    /// Waits for a request's turn among those of its tenant: for a read, or for the memory of its body.
    async fn turn(&self, tenant: &Arc<str>, turn: Needs) -> Result<Option<Turn>, Problem> {
        let (of, units) = match turn {
            Needs::Read => (&self.reads, 1),
            Needs::Body(0) | Needs::Nothing => return Ok(None),
            Needs::Body(bytes) => (&self.bodies, bytes.div_ceil(1024)),
        };
        let turn = tokio::time::timeout(TURN_WITHIN, of.turn_of(tenant.clone(), units)).await.map_err(|_| {
            let detail = "Too many requests of this tenant are in progress. Wait for `Retry-After`.";
            Problem::later(Code::RateLimited, detail, Duration::from_secs(1))
        });
        turn.map(Some)
    }

    /// The turn of a long poll, taken once there is something to return. It ends when the response is ready.
    pub(super) async fn end_of_poll(&self, who: &Authenticated) -> Result<(), Problem> {
        let turn = self.turn(&fair::key_of(&who.tenants), Needs::Read).await?;
        turn.into_iter().for_each(fair::keep);
        Ok(())
    }

    /// Runs a request. Its turn ends when its response is ready and has memory; that memory is kept until the
    /// response has been sent.
    async fn answer(
        &self,
        tenant: Arc<str>,
        admitted: Admitted,
        place: Option<Arc<InUse>>,
        request: Request,
        next: Next,
    ) -> Response {
        let in_batch = request.extensions().get::<InBatch>().is_some();
        let safe = request.method().is_safe();
        let turn = match self.turn(&tenant, admitted.needs(&request)).await {
            Ok(turn) => turn,
            Err(problem) => return problem.into_response(),
        };
        let call = Call::of(tenant.clone());
        let response = call.run(next.run(request)).await;
        // A stream is not buffered, and has a limit of its own.
        let Some(bytes) = body_permit::length(&response) else { return response };
        let counts = bytes > SHORT || (in_batch && safe);
        let more =
            if counts { bytes.div_ceil(1024) as usize } else { 0 }.saturating_sub(call.keeps(&self.answers));
        if more > 0 {
            let room = if in_batch {
                // The responses of one batch do not wait: they would wait for each other.
                self.answers.try_turn_of(tenant, more)
            } else {
                tokio::time::timeout(ROOM_WITHIN, self.answers.turn_of(tenant, more)).await.ok()
            };
            match room {
                // The memory of a batch item's response is kept until the batch is answered.
                Some(room) if in_batch => fair::keep(room),
                Some(room) => call.keep(room),
                None if in_batch && fair::kept(&self.answers) + more > ANSWERS_OF_A_TENANT_KIB => {
                    return batch::too_long().into_response();
                }
                None => return no_room(safe).into_response(),
            }
        }
        call.give_back(&self.reads);
        drop(turn);
        body_permit::holding(response, (call, place))
    }

    /// Accepts only configured host names, against DNS rebinding: a page elsewhere that points its own name
    /// here is refused.
    fn check_host(&self, live: &Live, headers: &HeaderMap, uri: &Uri) -> Result<String, Problem> {
        let given = match (headers.get(header::HOST), uri.authority()) {
            (Some(host), _) => host.to_str().unwrap_or_default(),
            (None, Some(authority)) => authority.as_str(),
            // Every browser sends a host: without one, this is a call in process.
            (None, None) => return Ok(String::new()),
        };
        let given = given.to_ascii_lowercase();
        let name = host_name(&given);
        let loopback = ["localhost", "127.0.0.1", "[::1]"].contains(&name);
        let own =
            self.listen.is_some_and(|at| !at.ip().is_unspecified() && host_name(&at.to_string()) == name);
        if loopback || own || live.hosts.iter().any(|host| host == name || *host == given) {
            return Ok(given);
        }
        let detail =
            format!("`{name}` is not a host name of this daemon. Add it to `hosts` in the configuration.");
        Err(Problem::new(Code::HostRefused, detail))
    }

    /// Browsers send the origin of a page; only the daemon's own pages and the configured origins may call.
    fn check_origin(&self, live: &Live, headers: &HeaderMap, host: &str) -> Result<(), Problem> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        let same = origin.split_once("://").is_some_and(|(_, rest)| rest == host);
        if same || live.origins.contains(&origin) {
            return Ok(());
        }
        let detail = format!(
            "Pages from `{origin}` may not call this daemon. Add it to `origins` in the configuration."
        );
        Err(Problem::new(Code::OriginRefused, detail))
    }
}

/// The memory that a request's body may need; 0 inside a batch, which has reserved it already.
fn body_bytes(request: &Request) -> usize {
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    match declared.and_then(|length| length.parse().ok()) {
        Some(bytes) => bytes,
        None if request.body().size_hint().exact().is_some() => 0,
        None => BODY_MAX,
    }
}

/// The response is ready, but too many others of its tenant are still in memory.
fn no_room(safe: bool) -> Problem {
    if safe {
        let detail =
            "Too many large responses of this tenant are being sent. Read them, or ask for smaller pages.";
        return Problem::later(Code::RateLimited, detail, Duration::from_secs(1));
    }
    let why = "the call was made, but too many large responses of this tenant are being sent";
    Error::OutcomeUnknown(why.to_owned()).into()
}

fn limit(rate: Rate) -> RateLimit {
    RateLimit { per_s: rate.per_second, burst: rate.burst }
}

/// Longer URIs and headers are refused with a problem. The listener's own limits are several times larger,
/// and refuse without one.
const URI_MAX: usize = 8 * 1024;
const HEADERS_MAX: usize = 32 * 1024;
pub(crate) const HEADERS_COUNT: usize = 100;

/// Runs before any part of the request is used or repeated in a response.
fn check_size(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let query = uri.query().map_or(0, |query| query.len() + 1);
    if uri.path().len() + query > URI_MAX {
        let detail = format!(
            "The path and query have more than {URI_MAX} bytes. Shorten a name, or ask for smaller pages."
        );
        return Err(Problem::new(Code::UriTooLong, detail));
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > HEADERS_MAX || headers.len() > HEADERS_COUNT {
        let detail = format!(
            "There are more than {HEADERS_COUNT} headers, or more than {HEADERS_MAX} bytes of them. Leave out those \
             that this daemon does not need, cookies for example."
        );
        return Err(Problem::new(Code::HeadersTooLarge, detail));
    }
    Ok(())
}

/// Without the port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

pub(crate) async fn guard(State(guard): State<Admission>, mut request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let route = path.as_ref().map_or("", |path| path.as_str());
    let span = traces::request(&method, route, request.uri().path(), request.headers());
    let answering = async {
        match admit(&guard, &method, route, &mut request).await {
            Ok(admitted) => {
                let tenant =
                    request.extensions().get::<Arc<Authenticated>>().map(|who| fair::key_of(&who.tenants));
                let place = request.extensions_mut().remove::<Arc<InUse>>();
                let DryRun(dry_run) = admitted.dry_run;
                let mut response = match tenant {
                    Some(tenant) => guard.app.doors.answer(tenant, admitted, place, request, next).await,
                    None => next.run(request).await,
                };
                if dry_run {
                    let said = HeaderValue::from_static("true");
                    response.headers_mut().insert(wire::DRY_RUN_HEADER, said);
                }
                response
            }
            Err(problem) => problem.into_response(),
        }
    };
    let mut response = answering.instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    let app = &guard.app;
    app.metrics.request(method.as_str(), route, response.status().as_u16());
    if !method.is_safe() && response.status().is_success() {
        app.feed.nudge();
    }
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

async fn admit(
    guard: &Admission,
    method: &Method,
    route: &str,
    request: &mut Request,
) -> Result<Admitted, Problem> {
    check_size(request.uri(), request.headers())?;
    let app = &guard.app;
    {
        let live = app.live.borrow();
        let host = app.doors.check_host(&live, request.headers(), request.uri())?;
        app.doors.check_origin(&live, request.headers(), &host)?;
    }
    let Some(rule) = guard.contract.rule(method, route) else {
        return Err(Problem::new(Code::Forbidden, "This route declares no scope, so nobody may use it."));
    };
    let parameters = Parameters::read(request.uri())?;
    let needed = match rule.access {
        Access::Public => {
            parameters.check(method, rule)?;
            return Ok(Admitted { dry_run: DryRun(false), polls: false });
        }
        Access::Token => None,
        Access::Needs(scope) => Some(scope),
    };
    let session = match request.extensions().get::<InProcess>() {
        Some(InProcess(session)) => session.clone(),
        None => {
            let token = bearer(request.headers()).ok_or(Denied::NoToken)?;
            // None when the router is called in process.
            let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0.ip());
            let session = app.auth.identify(token, peer).await??;
            app.doors.check_rate(session.id)?;
            session
        }
    };
    needed.map_or(Ok(()), |scope| session.require(scope))?;
    if session.kinds != Kinds::All && !rule.by_kind {
        return Err(Denied::Kinds.into());
    }
    parameters.check(method, rule)?;
    let dry_run = DryRun::asked(method, &parameters, rule)?;
    if request.extensions().get::<InBatch>().is_none()
        && let Some(place) = app.usage.call(&session.tenants, &app.live.borrow().quotas)?
    {
        request.extensions_mut().insert(Arc::new(place));
    }
    request.extensions_mut().insert(session);
    request.extensions_mut().insert(dry_run);
    Ok(Admitted { dry_run, polls: parameters.poll() })
}

/// Facts about an admitted request.
struct Admitted {
    dry_run: DryRun,
    /// A long poll.
    polls: bool,
}

/// The capacity that a request waits for before it runs.
enum Needs {
    Read,
    /// Memory for so many bytes.
    Body(usize),
    Nothing,
}

impl Admitted {
    fn needs(&self, request: &Request) -> Needs {
        match request.method().is_safe() {
            // A long poll takes its turn when it has something to return.
            true if self.polls => Needs::Nothing,
            true => Needs::Read,
            false => Needs::Body(body_bytes(request)),
        }
    }
}

/// The query of a request, read before the route runs, so that a misspelt parameter has no effect.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn read(uri: &Uri) -> Result<Self, Problem> {
        serde_urlencoded::from_str(uri.query().unwrap_or_default())
            .map(Self)
            .map_err(|error| Problem::invalid(format!("The query cannot be read: {error}. Encode it again.")))
    }

    /// Whether the request is a long poll. Only routes that can wait take the parameter.
    fn poll(&self) -> bool {
        self.0.iter().any(|(name, _)| name == "wait")
    }

    /// Refuses parameters that the route does not take. [`DryRun`] refuses its own where the route has no dry
    /// run.
    fn check(&self, method: &Method, rule: &Rule) -> Result<(), Problem> {
        let known = |name: &String| rule.parameters.contains(name) || (!method.is_safe() && name == DRY_RUN);
        match self.0.iter().map(|(name, _)| name).find(|name| !known(name)) {
            Some(name) => Err(Problem::unknown_parameter(name, &rule.parameters)),
            None => Ok(()),
        }
    }
}

/// Whether the request is a dry run: it returns what would happen and writes nothing.
#[derive(Clone, Copy)]
pub(crate) struct DryRun(pub bool);

impl DryRun {
    /// Read before the route runs, so that a route without a dry run does nothing.
    fn asked(method: &Method, Parameters(given): &Parameters, rule: &Rule) -> Result<Self, Problem> {
        if method.is_safe() {
            return Ok(Self(false));
        }
        let mut asked = given.iter().filter(|(name, _)| name == DRY_RUN).map(|(_, value)| value.as_str());
        match (asked.next(), asked.next()) {
            (None, _) | (Some("false"), None) => Ok(Self(false)),
            (Some("true"), None) if rule.dry_run => Ok(Self(true)),
            (Some("true"), None) => Err(Problem::new(
                Code::Unsupported,
                "This route has no dry run, and nothing was done. In a batch, give `dry_run` with each call's path.",
            )),
            _ => Err(Problem::invalid("`dry_run` is `true` or `false`, once. Nothing was done.")),
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then(|| token.trim())
}

pub(crate) async fn no_such_route(uri: Uri, headers: HeaderMap) -> Problem {
    let detail = || format!("There is no route `{}`. See /openapi.json for the routes.", uri.path());
    check_size(&uri, &headers).err().unwrap_or_else(|| Problem::new(Code::NoSuchRoute, detail()))
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri, headers: HeaderMap) -> Problem {
    let detail = || format!("This route does not take {method}. See /openapi.json for its methods.");
    check_size(&uri, &headers).err().unwrap_or_else(|| Problem::new(Code::MethodNotAllowed, detail()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_parameter_itself_makes_a_long_poll() {
        for (query, polls) in [
            ("wait=terminal&timeout_ms=1", true),
            ("timeout_ms=1&w%61it=terminal", true),
            ("limit=1000&correlation_id=wait=", false),
            ("correlation_id=%26wait=terminal", false),
            ("kind=wait", false),
            ("", false),
        ] {
            let uri: Uri = format!("/v1/work?{query}").parse().unwrap();
            assert_eq!(Parameters::read(&uri).unwrap().poll(), polls, "{query}");
        }
    }

    #[test]
    fn only_allowed_names_and_the_own_pages_get_in() {
        let live = Live {
            hosts: vec!["tenure.example.com".into()],
            origins: vec!["https://ops.example.com".into()],
            ..Live::default()
        };
        let doors = AdmissionLimits::new(Some("10.0.0.5:7171".parse().unwrap()), Rate::default());
        let knock = |host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().unwrap());
            }
            let host = doors.check_host(&live, &headers, &Uri::from_static("/"))?;
            doors.check_origin(&live, &headers, &host)
        };
        for host in ["localhost:7171", "127.0.0.1", "[::1]:7171", "10.0.0.5:7171", "Tenure.Example.Com:443"] {
            assert!(knock(host, None).is_ok(), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.6:7171", "localhost.evil.example:7171"]
        {
            assert_eq!(knock(host, None).unwrap_err().code, Code::HostRefused, "{host}");
        }
        for origin in ["http://localhost:7171", "https://ops.example.com"] {
            assert!(knock("localhost:7171", Some(origin)).is_ok(), "{origin}");
        }
        for origin in ["http://evil.example", "null", "http://localhost:3000", "https://ops.example.com.evil"]
        {
            assert_eq!(
                knock("localhost:7171", Some(origin)).unwrap_err().code,
                Code::OriginRefused,
                "{origin}"
            );
        }
    }
}
