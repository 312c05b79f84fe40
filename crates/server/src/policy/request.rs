//! A command as Cedar sees it: who, which tool, what target, and everything else as the context.

use std::{str::FromStr, sync::LazyLock};

use cedar_policy::{
    Context, Entities, Entity, EntityId, EntityTypeName, EntityUid, Request, RestrictedExpression as Expr,
};
use serde_json::Value;
use tenure_core::{ActorKind, Millis, command::Risk};

use super::{Ask, names};

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

pub(super) fn build(ask: &Ask<'_>) -> Result<(Request, Entities), String> {
    let kind = match ask.actor.kind {
        ActorKind::Person => &PERSON,
        ActorKind::Machine => &MACHINE,
        ActorKind::Worker => &WORKER,
        ActorKind::System => &SYSTEM,
    };
    let target = uid(&TARGET, ask.target);
    let risk = match ask.risk {
        Risk::Low => "low",
        Risk::High => "high",
    };
    let attributes = [("tool".to_owned(), text(ask.tool)), ("risk".to_owned(), text(risk))].into();
    let resource = Entity::new(target.clone(), attributes, Default::default()).map_err(|e| e.to_string())?;
    let entities = Entities::from_entities([resource], None).map_err(|e| e.to_string())?;
    let context = context(ask)?;
    let request = Request::new(uid(kind, &ask.actor.id), uid(&ACTION, ask.tool), target, context, None);
    Ok((request.map_err(|e| e.to_string())?, entities))
}

fn context(ask: &Ask<'_>) -> Result<Context, String> {
    let work = record([
        ("id", text(ask.work.id)),
        ("kind", text(ask.work.kind)),
        ("source", text(ask.work.source)),
        ("attempt", Expr::new_long(ask.work.attempt.into())),
    ])?;
    let micros = ask.estimate.micros.iter().map(|(currency, amount)| (currency.as_str(), long(*amount)));
    let budget = record([("tokens", long(ask.estimate.tokens)), ("micros", record(micros)?)])?;
    let pairs = [
        ("arguments", value(ask.arguments)?.unwrap_or_else(|| Expr::new_bool(false))),
        ("tenant", text(ask.tenant)),
        ("work", work),
        ("time", time(ask.now)?),
        ("budget", budget),
    ];
    Context::from_pairs(pairs.map(|(name, expr)| (name.to_owned(), expr))).map_err(|e| e.to_string())
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
fn value(json: &Value) -> Result<Option<Expr>, String> {
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
            let items: Vec<Option<Expr>> = items.iter().map(value).collect::<Result<_, _>>()?;
            items.into_iter().collect::<Option<Vec<_>>>().map(Expr::new_set)
        }
        Value::Object(fields) => {
            let mut pairs = Vec::with_capacity(fields.len());
            for (name, field) in fields {
                pairs.extend(value(field)?.map(|expr| (name.as_str(), expr)));
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
