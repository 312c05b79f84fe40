//! The table `tenure_intake`: an application inserts rows in its own transaction, and the ledger makes each committed row a
//! work item. A row is a request that waits; it is deleted once its work item is committed, or set aside with the reason.

use std::{collections::HashSet, fmt, future::Future, pin::Pin};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use tenure_core::{
    Code, Evidence, Millis, Refusal, WorkId, limits,
    model::{Disposition, OnParentClose, Source, Workflow},
    policy::PolicyOverrides,
};

use crate::{Error, NewWork, store::StoreFuture};

/// The tenant of a row that names none: the default of the column.
const DEFAULT_TENANT: &str = "default";

/// The longest input or options that are read. The ledger's own limit is below it.
pub(crate) const LONGEST: usize = 2 * limits::PAYLOAD_BYTES;

/// The state of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntakeTable {
    /// Rows that wait. Counted up to 10,000, as are the rejected ones.
    pub waiting: u64,
    /// When the oldest waiting row was inserted.
    pub oldest_at: Option<Millis>,
    /// Rows that were set aside. An operator corrects, retries or deletes them.
    pub rejected: u64,
    /// The reason of the last one.
    pub newest_reason: Option<String>,
}

pub(crate) trait IntakeRows {
    /// The first waiting rows of some sources, by source and in the order in which they are taken: of at most `limit`
    /// sources after this one, without those of some tenants. Each source has the same share of `limit` rows, and at least
    /// one row.
    fn intake_rows<'a>(
        &'a self,
        except: &'a [String],
        after: Option<&'a IntakeSource>,
        limit: usize,
    ) -> StoreFuture<'a, Vec<IntakeRow>>;

    /// Deletes the rows that are work items now, and sets the rejected ones aside, in one transaction.
    fn settle_intake_rows<'a>(
        &'a self,
        done: &'a [i64],
        rejected: &'a [(i64, String)],
        at: Millis,
    ) -> StoreFuture<'a, ()>;

    fn intake_table(&self) -> StoreFuture<'_, IntakeTable>;

    /// Returns when rows may have come: by a hint, or because it is time to look again.
    fn intake_hint(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The tenant and the source system of a row.
pub(crate) type IntakeSource = (String, String);

/// One row, as text: nothing that an application wrote can make it unreadable.
#[derive(Clone, Debug, Default)]
pub(crate) struct IntakeRow {
    pub id: i64,
    pub tenant: String,
    pub source_system: String,
    pub source_id: String,
    pub source_run_id: String,
    pub kind: String,
    pub disposition: String,
    /// None: it is longer than any payload may be.
    pub input: Option<String>,
    pub priority: i64,
    pub session: Option<String>,
    pub correlation_id: Option<String>,
    pub options: Option<String>,
    /// The reason for which it cannot be a work item.
    pub unreadable: Option<String>,
}

/// The settings that few rows have.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RowOptions {
    title: Option<String>,
    workflow: Option<Workflow>,
    parent: Option<WorkId>,
    on_parent_close: OnParentClose,
    policy: PolicyOverrides,
    evidence: Vec<Evidence>,
}

impl IntakeRow {
    /// The work item that it asks for, or why there is none.
    pub fn new_work(self) -> Result<NewWork, String> {
        if let Some(why) = self.unreadable {
            return Err(why);
        }
        let input = self.input.ok_or_else(|| format!("input: it has more than {LONGEST} bytes"))?;
        let input: Value = unambiguous(&input).map_err(|why| format!("input: {why}"))?;
        let disposition = named::<Disposition>(&self.disposition).ok_or_else(|| {
            let given = crate::schema::shortened(self.disposition.clone());
            format!("disposition: `{given}` is not rerunnable, owner_bound or externally_owned")
        })?;
        let options = match self.options.as_deref() {
            None => RowOptions::default(),
            Some(text) => options(text).map_err(|why| format!("options: {why}"))?,
        };
        Ok(NewWork {
            tenant: self.tenant,
            source: Source { system: self.source_system, id: self.source_id, run_id: self.source_run_id },
            kind: self.kind,
            title: options.title,
            disposition,
            input,
            priority: i16::try_from(self.priority)
                .map_err(|_| format!("priority: {} is out of range", self.priority))?,
            session: self.session,
            correlation_id: self.correlation_id,
            workflow: options.workflow,
            parent: options.parent,
            on_parent_close: options.on_parent_close,
            policy: options.policy,
            evidence: options.evidence,
            claim: None,
            born: None,
        })
    }
}

fn named<T: for<'de> Deserialize<'de>>(name: &str) -> Option<T> {
    serde_json::from_value(Value::from(name)).ok()
}

/// Stored settings may have fields of a newer version; an application's row may not have misspelt ones.
fn options(text: &str) -> Result<RowOptions, String> {
    let given: Value = unambiguous(text)?;
    let options: RowOptions = serde_json::from_value(given.clone()).map_err(|error| error.to_string())?;
    let known = serde_json::to_value(&options).map_err(|error| error.to_string())?;
    fault("options", &given, &known).map_or(Ok(options), Err)
}

/// A field that is not known, or a list in the place of an object: serde reads it as the object's fields in their order.
fn fault(name: &str, given: &Value, known: &Value) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => {
            given.iter().find_map(|(name, value)| match known.get(name) {
                Some(known) => fault(name, value, known),
                None => (!value.is_null()).then(|| format!("unknown field `{name}`")),
            })
        }
        (Value::Array(given), Value::Array(known)) => {
            given.iter().zip(known).find_map(|(given, known)| fault(name, given, known))
        }
        (Value::Array(_), Value::Object(_)) => Some(format!("`{name}` is a list; an object is needed")),
        _ => None,
    }
}

/// A JSON text in which no object repeats a name.
fn unambiguous(text: &str) -> Result<Value, String> {
    let Names = serde_json::from_str(text).map_err(|error| error.to_string())?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Any JSON value, of which only the names are looked at.
struct Names;

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_any(Names)
    }
}

impl<'de> Visitor<'de> for Names {
    type Value = Names;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Names, E> {
        Ok(Names)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Names, E> {
        Ok(Names)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Names, E> {
        Ok(Names)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Names, E> {
        Ok(Names)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Names, E> {
        Ok(Names)
    }

    fn visit_str<E>(self, _: &str) -> Result<Names, E> {
        Ok(Names)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Names, A::Error> {
        while let Some(Names) = list.next_element()? {}
        Ok(Names)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Names, A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = object.next_key::<String>()? {
            if names.contains(&name) {
                return Err(A::Error::custom(format!("duplicate key `{name}`")));
            }
            names.insert(name);
            let Names = object.next_value()?;
        }
        Ok(Names)
    }
}

/// A row for the table as an application inserts it, with its own connection and in its own transaction. `values` are the
/// parameters of the statement, all of them texts. A row of the tenant `default` does not name the column `tenant`, so that
/// a role which may not write that column can insert it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntakeInsert {
    values: Vec<Option<String>>,
}

/// The parameters of a row of the tenant `default`. The other rows have their tenant as the last one.
const VALUES: usize = 10;

macro_rules! insert {
    ($columns:literal, $values:literal) => {
        concat!(
            "INSERT INTO tenure_intake (source_system, source_id, source_run_id, kind, disposition, input, priority, \
             session, correlation_id, options",
            $columns,
            ") VALUES (",
            $values,
            ")"
        )
    };
}

impl IntakeInsert {
    /// The statement for an SQLite connection.
    pub fn sqlite(&self) -> &'static str {
        if self.values.len() == VALUES {
            insert!("", "?1, ?2, ?3, ?4, ?5, ?6, CAST(?7 AS INTEGER), ?8, ?9, ?10")
        } else {
            insert!(", tenant", "?1, ?2, ?3, ?4, ?5, ?6, CAST(?7 AS INTEGER), ?8, ?9, ?10, ?11")
        }
    }

    /// The statement for a PostgreSQL connection.
    pub fn postgres(&self) -> &'static str {
        if self.values.len() == VALUES {
            insert!("", "$1, $2, $3, $4, $5, $6, $7::text::integer, $8, $9, $10")
        } else {
            insert!(", tenant", "$1, $2, $3, $4, $5, $6, $7::text::integer, $8, $9, $10, $11")
        }
    }

    /// The parameters of the statement, in its order.
    pub fn values(&self) -> &[Option<String>] {
        &self.values
    }
}

impl TryFrom<&NewWork> for IntakeInsert {
    type Error = Error;

    /// Refuses what a row cannot ask for: a claim together with the ingest, and work that is over.
    fn try_from(new: &NewWork) -> Result<Self, Error> {
        if new.claim.is_some() || new.born.is_some() {
            let detail =
                "A row of `tenure_intake` cannot claim the work item, and cannot record one that is over.";
            return Err(Refusal::new(Code::Unsupported, detail).into());
        }
        let options = RowOptions {
            title: new.title.clone(),
            workflow: new.workflow.clone(),
            parent: new.parent,
            on_parent_close: new.on_parent_close,
            policy: new.policy,
            evidence: new.evidence.clone(),
        };
        let options = (options != RowOptions::default()).then(|| json(&options));
        let text = |text: &str| Some(text.to_owned());
        let mut values = vec![
            text(&new.source.system),
            text(&new.source.id),
            text(&new.source.run_id),
            text(&new.kind),
            Some(json(&new.disposition).replace('"', "")),
            Some(new.input.to_string()),
            Some(new.priority.to_string()),
            new.session.clone(),
            new.correlation_id.clone(),
            options,
        ];
        if new.tenant != DEFAULT_TENANT {
            values.push(text(&new.tenant));
        }
        Ok(Self { values })
    }
}

fn json(part: &impl Serialize) -> String {
    serde_json::to_string(part).expect("plain structs with string keys always serialise")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(options: &str) -> IntakeRow {
        IntakeRow {
            disposition: "rerunnable".to_owned(),
            input: Some("{}".to_owned()),
            options: Some(options.to_owned()),
            ..IntakeRow::default()
        }
    }

    #[test]
    fn an_insert_is_read_back_as_what_it_was_made_of() {
        let mut new = NewWork::new("app", "1", "job", Disposition::OwnerBound, json!({ "n": [1, "é"] }));
        new.priority = -3;
        new.session = Some("s".to_owned());
        new.workflow = Some(Workflow { id: "flow".to_owned(), version: "2".to_owned() });
        new.on_parent_close = OnParentClose::Cancel;
        let insert = IntakeInsert::try_from(&new).unwrap();
        let values: [Option<String>; VALUES] = insert.values.clone().try_into().unwrap();
        let [system, id, run, kind, disposition, input, priority, session, correlation, options] = values;
        let read = IntakeRow {
            id: 1,
            tenant: DEFAULT_TENANT.to_owned(),
            source_system: system.unwrap(),
            source_id: id.unwrap(),
            source_run_id: run.unwrap(),
            kind: kind.unwrap(),
            disposition: disposition.unwrap(),
            input,
            priority: priority.unwrap().parse().unwrap(),
            session,
            correlation_id: correlation,
            options,
            unreadable: None,
        };
        assert_eq!(format!("{:?}", read.new_work().unwrap()), format!("{new:?}"));
    }

    #[test]
    fn an_ambiguous_input_is_told() {
        let of = |input: &str| {
            IntakeRow { input: Some(input.to_owned()), ..row("{}") }.new_work().map(|new| new.input)
        };
        let input = r#"{"a":[{"b":1},{"b":2.5,"c":[true,null,-1,"é"]}],"b":{"a":{}}}"#;
        assert_eq!(of(input).unwrap(), serde_json::from_str::<Value>(input).unwrap());
        for input in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"\u0061":2}}]"#] {
            let told = of(input).unwrap_err();
            assert!(told.starts_with("input: duplicate key `a`"), "{told}");
        }
        assert!(of("1 2").unwrap_err().starts_with("input: "));
    }

    #[test]
    fn a_misspelt_setting_is_told() {
        assert!(row(r#"{"policy":{"timeouts":{"start_ms":5}},"parent":null}"#).new_work().is_ok());
        for (options, why) in [
            (r#"{"polcy":{}}"#, "polcy"),
            (r#"{"policy":{"timeouts":{"strat_ms":5}}}"#, "strat_ms"),
            (r#"{"parent":"w_1"}"#, "options: "),
            ("[", "options: "),
            ("", "options: "),
            ("[]", "options: `options` is a list"),
            (r#"{"policy":[]}"#, "options: `policy` is a list"),
            (r#"{"workflow":["f","1"]}"#, "options: `workflow` is a list"),
            (r#"{"title":"a","title":"b"}"#, "options: duplicate key `title`"),
            (r#"{"policy":{"timeouts":{"start_ms":5,"start_ms":6}}}"#, "duplicate key `start_ms`"),
        ] {
            let told = row(options).new_work().unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
