//! A command as Cedar sees it: principal, action, resource, and everything else as the context.

use std::{str::FromStr, sync::LazyLock};

use cedar_policy::{
    AuthorizationError, Authorizer, Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, PolicyId,
    PolicySet, Request, RestrictedExpression as Expr,
};
use serde_json::{Number, Value};
use tenure_core::{
    ActorKind, Millis,
    command::{Risk, budget::Cost},
};

use super::{
    Ask, WorkFacts, names,
    read_paths::{ReadPaths, WHOLE},
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

/// A command in Cedar's form, reduced to the paths that policies read.
pub(super) struct Question {
    request: Request,
    entities: Entities,
}

impl Question {
    pub fn new(ask: &Ask<'_>, wanted: &ReadPaths) -> Result<Self, String> {
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

    /// The policies of a set that are met, and the ones that cannot be evaluated, with the error. A set
    /// contains either permits or forbids, since Cedar does not report permits when a forbid is met.
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

fn context(ask: &Ask<'_>, wanted: &ReadPaths) -> Result<Context, String> {
    let mut pairs = Vec::new();
    let mut put = |name: &str, expr| pairs.push((name.to_owned(), expr));
    if let Some(wanted) = wanted.of("arguments") {
        let arguments = value(ask.arguments, wanted, &mut { VALUES })
            .map_err(|Unfit { path, why }| format!("in `context.arguments{path}` {why}"))?;
        put("arguments", arguments.unwrap_or_else(|| Expr::new_bool(false)));
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

/// A value that policies read and Cedar cannot represent. Leaving it out would bypass every `forbid` that
/// tests for it with `has`, so the command is denied.
struct Unfit {
    /// Its path from the arguments on, each name with its dot.
    path: String,
    why: String,
}

impl Unfit {
    fn new(why: impl Into<String>) -> Self {
        Self { path: String::new(), why: why.into() }
    }

    fn below(self, name: &str) -> Self {
        Self { path: format!(".{name}{}", self.path), ..self }
    }
}

/// The number of argument values that policies may read. Policies are evaluated on the threads that answer
/// requests, and this takes some tens of milliseconds at most.
const VALUES: usize = 25_000;

/// Converts JSON to Cedar; `left` is the number of values still allowed. A null field is left out: Cedar has
/// no null, and `has` is false for both.
fn value(json: &Value, wanted: &ReadPaths, left: &mut usize) -> Result<Option<Expr>, Unfit> {
    *left = left.checked_sub(1).ok_or_else(|| {
        Unfit::new(format!("policies would read more than {VALUES} values: send fewer in one command"))
    })?;
    Ok(Some(match json {
        Value::Null => return Ok(None),
        Value::Bool(flag) => Expr::new_bool(*flag),
        Value::String(string) => text(string),
        Value::Number(number) => self::number(number)?,
        Value::Array(items) => list(items, left)?,
        Value::Object(fields) => {
            let mut pairs = Vec::new();
            let mut put = |name, field, wanted| {
                let expr = value(field, wanted, left).map_err(|unfit| unfit.below(name))?;
                pairs.extend(expr.map(|expr| (name, expr)));
                Ok(())
            };
            match wanted.names() {
                None => fields.iter().try_for_each(|(name, field)| put(name.as_str(), field, &WHOLE))?,
                Some(mut names) => names.try_for_each(|(name, wanted)| match fields.get(name) {
                    Some(field) => put(name, field, wanted),
                    None => Ok(()),
                })?,
            }
            record(pairs).map_err(Unfit::new)?
        }
    }))
}

/// A list as a Cedar set. Its items must be of one kind: `contains` and `==` are false rather than an error
/// for another kind, so a `forbid` could be bypassed by writing an item in the other kind.
fn list(items: &[Value], left: &mut usize) -> Result<Expr, Unfit> {
    if items.iter().any(Value::is_null) {
        return Err(Unfit::new("a list has a null, which Cedar cannot represent: leave it out"));
    }
    if let Some((first, other)) = items.first().zip(items.iter().find(|item| kind(item) != kind(&items[0]))) {
        let (first, other) = (kind(first), kind(other));
        return Err(Unfit::new(format!("a list has a {first} and a {other}: send items of one kind")));
    }
    let exprs: Vec<Option<Expr>> =
        items.iter().map(|item| value(item, &WHOLE, left)).collect::<Result<_, Unfit>>()?;
    Ok(Expr::new_set(exprs.into_iter().flatten()))
}

fn kind(json: &Value) -> &'static str {
    match json {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if is_whole(number) => "whole number",
        Value::Number(_) => "decimal number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "record",
    }
}

fn is_whole(number: &Number) -> bool {
    number.as_f64().is_none_or(|float| float.fract() == 0.0)
}

/// An integer becomes a long; another number a decimal with at most four places, from its shortest form.
fn number(number: &Number) -> Result<Expr, Unfit> {
    if let Some(integer) = number.as_i64() {
        return Ok(Expr::new_long(integer));
    }
    let form = number.as_f64().map(|float| float.to_string()).unwrap_or_default();
    let too_large = || Unfit::new(format!("the number {number} is too large for Cedar: send it as a string"));
    match form.split_once('.') {
        None => form.parse().map(Expr::new_long).map_err(|_| too_large()),
        Some((_, places)) if places.len() > 4 => Err(Unfit::new(format!(
            "the number {number} has more than four decimal places: round it, or send it as a string"
        ))),
        Some((whole, _)) if whole.trim_start_matches('-').len() > 14 => Err(too_large()),
        Some(_) => Ok(Expr::new_decimal(&form)),
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
