//! Credentials: a small table of its own, away from the hot path.

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use tenure_core::{Actor, CredentialId, PrincipalId, action::Names, payload::Digest};

use super::{
    SqliteStore,
    read::bound,
    row::{self, Read, name_of, to_json},
};
use crate::{
    Credential, Listed, Principal, Revocation,
    credential::CREDENTIALS_MAX,
    store::{CredentialStore, StoreFuture},
    token::Key,
};

macro_rules! columns {
    () => {
        "id, name, principal, principal_name, kind, hash, scopes, tenants, kinds, worker, created_at, created_by, \
         expires_at, revoked_at, revoked_by, revoked_reason"
    };
}
pub(super) use columns;

const ADD: &str = "INSERT INTO credential \
     (id, name, principal, principal_name, kind, hash, scopes, tenants, kinds, worker, created_at, created_by, expires_at, mac) \
     SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?15 \
     WHERE (SELECT count(*) FROM credential WHERE revoked_at IS NULL) < ?14 ON CONFLICT (hash) DO NOTHING";
const BY_HASH: &str = concat!("SELECT ", columns!(), " FROM credential WHERE hash = ?1");
const LIST: &str = concat!("SELECT ", columns!(), " FROM credential WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
const OF: &str =
    concat!("SELECT ", columns!(), " FROM credential WHERE principal = ?1 ORDER BY id DESC LIMIT ?2");
const BY_ID: &str = concat!("SELECT ", columns!(), " FROM credential WHERE id = ?1");
const COUNT: &str = "SELECT count(*) FROM credential WHERE revoked_at IS NULL \
     AND (?1 IS NULL OR EXISTS (SELECT 1 FROM json_each(tenants) t WHERE t.value = ?1))";
const REVOKED: &str = "SELECT 1 FROM credential WHERE id = ?1 AND revoked_at IS NOT NULL";
/// Whether a credential opens everything by these scopes, as [`Credential::opens_everything`] says.
macro_rules! opens {
    ($one:literal) => {
        concat!(
            "(",
            $one,
            ".kind = 'person' AND ",
            $one,
            ".tenants IS NULL AND ",
            $one,
            ".kinds IS NULL AND ",
            $one,
            ".worker IS NULL AND ",
            $one,
            ".revoked_at IS NULL \
             AND (",
            $one,
            ".expires_at IS NULL OR ",
            $one,
            ".expires_at > ?2) \
             AND NOT EXISTS (SELECT 1 FROM json_each(?3) k WHERE k.value NOT IN (SELECT s.value FROM json_each(",
            $one,
            ".scopes) s)))"
        )
    };
}

/// One statement: nobody else writes while it judges. The new MAC (?7) takes the place of the old one (?6), and of no other:
/// a credential that somebody changed stays without one of its own.
const REVOKE: &str = concat!(
    "UPDATE credential AS c SET revoked_at = coalesce(c.revoked_at, ?2), revoked_by = coalesce(c.revoked_by, ?4), \
     revoked_reason = coalesce(c.revoked_reason, ?5), \
     mac = CASE WHEN c.revoked_at IS NULL AND c.mac = ?6 THEN ?7 ELSE c.mac END WHERE c.id = ?1 AND (?3 IS NULL OR NOT ",
    opens!("c"),
    " OR EXISTS (SELECT 1 FROM credential o WHERE o.id <> ?1 AND ",
    opens!("o"),
    ")) RETURNING ",
    columns!()
);

fn revoke(
    conn: &Connection,
    key: &Key,
    id: CredentialId,
    revocation: &Revocation,
    keeping: Option<&[String]>,
) -> Read<Option<Credential>> {
    let one = |sql: &str, values: &[&dyn ToSql]| -> Read<Option<Credential>> {
        conn.prepare_cached(sql)?.query_row(values, |row| Ok(credential(row))).optional()?.transpose()
    };
    let Some(found) = one(BY_ID, params![id.0.as_bytes()])? else { return Ok(None) };
    let before = key.row_mac(&found).0;
    let after = key.row_mac(&Credential { revoked: Some(revocation.clone()), ..found }).0;
    let Revocation { at, by, reason } = revocation;
    let keeping = keeping.map(|scopes| to_json(&scopes)).transpose()?;
    one(REVOKE, params![id.0.as_bytes(), at, keeping, to_json(by)?, reason, before, after])
}

impl CredentialStore for SqliteStore {
    fn add_credential<'a>(&'a self, credential: &'a Credential) -> StoreFuture<'a, ()> {
        let (credential, mac) = (credential.clone(), self.key.row_mac(credential));
        self.write(move |conn| {
            conn.prepare_cached(ADD)?.execute(params![
                credential.id.0.as_bytes(),
                credential.name,
                credential.principal.id.0.as_bytes(),
                credential.principal.name,
                name_of(credential.principal.kind),
                credential.hash.0,
                to_json(&credential.scopes)?,
                listed(&credential.tenants)?,
                listed(&credential.kinds)?,
                credential.worker,
                credential.created_at,
                to_json(&credential.created_by)?,
                credential.expires_at,
                bound(CREDENTIALS_MAX),
                mac.0,
            ])?;
            Ok(())
        })
    }

    fn credential(&self, hash: Digest) -> StoreFuture<'_, Option<Credential>> {
        Box::pin(
            self.readers
                .credentials(move |reader| Ok(reader.all(BY_HASH, [hash.0], credential)?.into_iter().next())),
        )
    }

    fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> StoreFuture<'_, Listed<Credential, CredentialId>> {
        self.read(move |reader| {
            let before = before.map_or(vec![0xff; 17], |id| id.0.as_bytes().to_vec());
            let key = |row: &Row<'_>| Ok(CredentialId(row::uuid(row, 0)?));
            reader.listed(LIST, params![before, bound(limit)], limit, key, credential)
        })
    }

    fn credentials_of(&self, principal: PrincipalId, limit: usize) -> StoreFuture<'_, Vec<Credential>> {
        self.read(move |reader| reader.all(OF, params![principal.0.as_bytes(), bound(limit)], credential))
    }

    fn count_credentials<'a>(&'a self, tenant: Option<&'a str>) -> StoreFuture<'a, u64> {
        let tenant = tenant.map(str::to_owned);
        self.read(move |reader| {
            let counts = reader.all(COUNT, [tenant], |row| Ok(row.get::<_, i64>(0)?))?;
            Ok(counts.iter().sum::<i64>() as u64)
        })
    }

    fn revoked_among<'a>(&'a self, ids: &'a [CredentialId]) -> StoreFuture<'a, Vec<CredentialId>> {
        let ids = ids.to_vec();
        self.read(move |reader| {
            let mut revoked = Vec::new();
            for id in ids {
                let found = reader.all(REVOKED, params![id.0.as_bytes()], |_| Ok(id))?;
                revoked.extend(found);
            }
            Ok(revoked)
        })
    }

    fn revoke_credential<'a>(
        &'a self,
        id: CredentialId,
        revocation: &'a Revocation,
        keeping: Option<&'a [String]>,
    ) -> StoreFuture<'a, Option<Credential>> {
        let (revocation, keeping) = (revocation.clone(), keeping.map(<[String]>::to_vec));
        let key = self.key.clone();
        self.write(move |conn| revoke(conn, &key, id, &revocation, keeping.as_deref()))
    }
}

fn listed(names: &Names) -> Read<Option<String>> {
    match names {
        Names::All => Ok(None),
        Names::Only(list) => to_json(list).map(Some),
    }
}

pub(super) fn credential(row: &Row<'_>) -> Read<Credential> {
    let names =
        |column| -> Read<Names> { Ok(row::optional_json(row, column)?.map_or(Names::All, Names::Only)) };
    let principal = Principal {
        id: PrincipalId(row::uuid(row, 2)?),
        name: row.get(3)?,
        kind: row::named(row::text(row, 4)?)?,
    };
    let revoked_by: Option<Actor> = row::optional_json(row, 14)?;
    let revoked = match revoked_by {
        Some(by) => Some(Revocation { at: row.get(13)?, by, reason: row.get(15)? }),
        None => None,
    };
    Ok(Credential {
        id: CredentialId(row::uuid(row, 0)?),
        name: row.get(1)?,
        principal,
        hash: row::digest(row, 5)?,
        scopes: row::json(row, 6)?,
        tenants: names(7)?,
        kinds: names(8)?,
        worker: row.get(9)?,
        created_at: row.get(10)?,
        created_by: row::json(row, 11)?,
        expires_at: row.get(12)?,
        revoked,
    })
}
