//! A command as Cedar sees it: who, which tool, what target, and everything else as the context.

use std::{str::FromStr, sync::LazyLock};

use cedar_policy::{
    AuthorizationError, Authorizer, Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, PolicyId,
    PolicySet, Request, RestrictedExpression as Expr,
};
use serde_json::Value;
use tenure_core::{
    ActorKind, Millis,
    command::{Risk, budget::Cost},
};

use super::{
    Ask, WorkFacts, names,
    wanted::{WHOLE, Wanted},
};

static AUTHORIZER: LazyLock<Authorizer> = LazyLock::new(Authorizer::new);

static PERSON: LazyLock<EntityTypeName> = LazyLock::new(|| type_name(names::PERSON));
static MACHINE: LazyLock<EntityTypeName> = LazyLock::new(|| type_name(names::MACHINE));
static WORKER: LazyLock<EntityTypeName> = LazyLock::new(|| type_name(names::WORKER));
static SYSTEM: LazyLock<EntityTypeName> = LazyLock::new(|| type_name(names::SYSTEM));
static ACTION: LazyLock<EntityTypeName> = LazyLock::new(|| type_name(names::ACTION));
static TARGET: LazyLock<EntityTypeName> = LazyLock::new(|| type_name(names::TARGET));

fn type_name(name: &str) -> EntityTypeName {
    EntityTypeName::from_str(name).expect("a plain name")
}

fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

/// A command that can be put to policies, as far as they look at it.
pub(super) struct Question {
    request: Request,
    entities: Entities,
}

impl Question {
    pub fn new(ask: &Ask<'_>, wanted: &Wanted) -> Result<Self, String> {
        let kind = match ask.actor.kind {
            ActorKind::Person => &PERSON,
            ActorKind::Machine => &MACHINE,
            ActorKind::Worker => &WORKER,
            ActorKind::System => &SYSTEM,
        };
        let target = uid(&TARGET, ask.target);
        let entities = Entities::from_entities([resource(ask, &target)?], None).map_err(|e| e.to_string())?;
        let context = match wanted.of("context") {
            Some(wanted) => context(ask, wanted)?,
            None => Context::empty(),
        };
        let request = Request::new(uid(kind, &ask.actor.id), uid(&ACTION, ask.tool), target, context, None);
        Ok(Self { request: request.map_err(|e| e.to_string())?, entities })
    }

    /// The policies of a set that are met, and those that cannot be evaluated, with why. A set has permits or forbids,
    /// never both: Cedar tells no permit where a forbid is met.
    pub fn put(&self, policies: &PolicySet) -> Vec<(PolicyId, Option<String>)> {
        let response = AUTHORIZER.is_authorized(&self.request, policies, &self.entities);
        let met = response.diagnostics().reason().map(|id| (id.clone(), None));
        let failed =
            response.diagnostics().errors().map(|AuthorizationError::PolicyEvaluationError(error)| {
                (error.policy_id().clone(), Some(error.inner().to_string()))
            });
        met.chain(failed).collect()
    }
}

fn resource(ask: &Ask<'_>, target: &EntityUid) -> Result<Entity, String> {
    let risk = match ask.risk {
        Risk::Low => "low",
        Risk::High => "high",
    };
    let attributes = [("tool".to_owned(), text(ask.tool)), ("risk".to_owned(), text(risk))].into();
    Entity::new(target.clone(), attributes, Default::default()).map_err(|e| e.to_string())
}

fn context(ask: &Ask<'_>, wanted: &Wanted) -> Result<Context, String> {
    let mut pairs = Vec::new();
    let mut put = |name: &str, expr| pairs.push((name.to_owned(), expr));
    if let Some(wanted) = wanted.of("arguments") {
        put("arguments", value(ask.arguments, wanted)?.unwrap_or_else(|| Expr::new_bool(false)));
    }
    if wanted.of("tenant").is_some() {
        put("tenant", text(ask.tenant));
    }
    if wanted.of("work").is_some() {
        put("work", work(&ask.work)?);
    }
    if wanted.of("time").is_some() {
        put("time", time(ask.now)?);
    }
    if wanted.of("budget").is_some() {
        put("budget", budget(ask.estimate)?);
    }
    Context::from_pairs(pairs).map_err(|e| e.to_string())
}

fn work(work: &WorkFacts<'_>) -> Result<Expr, String> {
    record([
        ("id", text(work.id)),
        ("kind", text(work.kind)),
        ("source", text(work.source)),
        ("attempt", Expr::new_long(work.attempt.into())),
    ])
}

fn budget(estimate: &Cost) -> Result<Expr, String> {
    let micros = estimate.micros.iter().map(|(currency, amount)| (currency.as_str(), long(*amount)));
    record([("tokens", long(estimate.tokens)), ("micros", record(micros)?)])
}

/// UTC; the first day of the week is Monday, 1.
fn time(now: Millis) -> Result<Expr, String> {
    let hour = now.div_euclid(3_600_000).rem_euclid(24);
    // The first of January 1970 was a Thursday.
    let weekday = (now.div_euclid(86_400_000) + 3).rem_euclid(7) + 1;
    let long = Expr::new_long;
    record([("unix_ms", long(now)), ("hour", long(hour)), ("weekday", long(weekday))])
}

/// JSON as Cedar has it. What Cedar has no value for is left out, so that a policy that wants it is not met by
/// something else: null, and numbers that no decimal with four places says exactly.
fn value(json: &Value, wanted: &Wanted) -> Result<Option<Expr>, String> {
    Ok(match json {
        Value::Null => None,
        Value::Bool(flag) => Some(Expr::new_bool(*flag)),
        Value::String(string) => Some(text(string)),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Some(Expr::new_long(integer)),
            (None, Some(float)) => decimal(float),
            (None, None) => None,
        },
        Value::Array(items) => {
            let items = items.iter().map(|item| value(item, &WHOLE));
            let items: Vec<Option<Expr>> = items.collect::<Result<_, _>>()?;
            items.into_iter().collect::<Option<Vec<_>>>().map(Expr::new_set)
        }
        Value::Object(fields) => {
            let mut pairs = Vec::new();
            let mut put = |name, field, wanted| {
                pairs.extend(value(field, wanted)?.map(|expr| (name, expr)));
                Ok::<(), String>(())
            };
            match wanted.names() {
                None => fields.iter().try_for_each(|(name, field)| put(name.as_str(), field, &WHOLE))?,
                Some(mut names) => names.try_for_each(|(name, wanted)| match fields.get(name) {
                    Some(field) => put(name, field, wanted),
                    None => Ok(()),
                })?,
            }
            Some(record(pairs)?)
        }
    })
}

/// A number by its shortest decimal form, which is also its canonical one.
fn decimal(float: f64) -> Option<Expr> {
    let form = float.to_string();
    match form.split_once('.') {
        // Larger ones were refused at the door: they would be rounded.
        None => form.parse().ok().map(Expr::new_long),
        Some((whole, places)) => {
            let fits = places.len() <= 4 && whole.trim_start_matches('-').len() <= 14;
            fits.then(|| Expr::new_decimal(&form))
        }
    }
}

fn text(text: &str) -> Expr {
    Expr::new_string(text.to_owned())
}

fn long(number: u64) -> Expr {
    Expr::new_long(i64::try_from(number).unwrap_or(i64::MAX))
}

fn record<'n>(fields: impl IntoIterator<Item = (&'n str, Expr)>) -> Result<Expr, String> {
    Expr::new_record(fields.into_iter().map(|(name, expr)| (name.to_owned(), expr)))
        .map_err(|e| e.to_string())
}
