//! Credentials: a small table that the write path does not use.

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params};
use tenure_core::{Actor, CredentialId, PrincipalId, action::Names, payload::Digest};

use super::{
    SqliteStore,
    read::bound,
    row::{self, Read, name_of, to_json},
    table::table,
};
use crate::{
    Credential, Listed, Principal, Revocation,
    columns::{MAC, marks, names, statement, text},
    credential::CREDENTIALS_MAX,
    store::{CredentialStore, StoreFuture},
    token::Key,
};

const ADD: &str = statement!(
    "INSERT INTO credential (" { names(CredentialRow::COLUMNS) } ", " { names(MAC) }
    ") SELECT " { marks(CredentialRow::COLUMNS, 2) } ", " { marks(MAC, 2 + CredentialRow::COLUMNS.len()) }
    " WHERE (SELECT count(*) FROM credential WHERE revoked_at IS NULL) < ?1 ON CONFLICT (hash) DO NOTHING"
);
const BY_HASH: &str =
    statement!("SELECT " { names(CredentialRow::COLUMNS) } " FROM credential WHERE hash = ?1");
const LIST: &str = statement!(
    "SELECT " { names(CredentialRow::COLUMNS) } " FROM credential WHERE id < ?1 ORDER BY id DESC LIMIT ?2"
);
const OF: &str = statement!(
    "SELECT " { names(CredentialRow::COLUMNS) }
    " FROM credential WHERE principal = ?1 ORDER BY id DESC LIMIT ?2"
);
const BY_ID: &str = statement!("SELECT " { names(CredentialRow::COLUMNS) } " FROM credential WHERE id = ?1");
const COUNT: &str = "SELECT count(*) FROM credential WHERE revoked_at IS NULL \
     AND (?1 IS NULL OR EXISTS (SELECT 1 FROM json_each(tenants) t WHERE t.value = ?1))";
const REVOKED: &str = "SELECT 1 FROM credential WHERE id = ?1 AND revoked_at IS NOT NULL";
/// Whether a credential opens everything by these scopes, as in [`Credential::opens_everything`].
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

/// One statement, so that concurrent revocations exclude each other. The new MAC (?7) replaces only the old one (?6): a
/// credential that was changed by hand keeps a wrong MAC.
const REVOKE: &str = statement!(
    "UPDATE credential AS c SET revoked_at = coalesce(c.revoked_at, ?2), revoked_by = coalesce(c.revoked_by, ?4), \
     revoked_reason = coalesce(c.revoked_reason, ?5), \
     mac = CASE WHEN c.revoked_at IS NULL AND c.mac = ?6 THEN ?7 ELSE c.mac END WHERE c.id = ?1 AND (?3 IS NULL OR NOT "
    { text(opens!("c")) }
    " OR EXISTS (SELECT 1 FROM credential o WHERE o.id <> ?1 AND "
    { text(opens!("o")) }
    ")) RETURNING "
    { names(CredentialRow::COLUMNS) }
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
            let mut statement = conn.prepare_cached(ADD)?;
            statement.raw_bind_parameter(1, bound(CREDENTIALS_MAX))?;
            let at = CredentialRow::bind(&mut statement, 2, &credential)?;
            statement.raw_bind_parameter(at, mac.0)?;
            statement.raw_execute()?;
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

table! {
    /// A credential. Its MAC is in the next column.
    pub(super) CredentialRow(credential: &Credential) {
        id = &credential.id.0.as_bytes()[..],
        name = credential.name,
        principal = &credential.principal.id.0.as_bytes()[..],
        principal_name = credential.principal.name,
        kind = name_of(credential.principal.kind),
        hash = credential.hash.0,
        scopes = to_json(&credential.scopes)?,
        tenants = listed(&credential.tenants)?,
        kinds = listed(&credential.kinds)?,
        worker = credential.worker,
        created_at = credential.created_at,
        created_by = to_json(&credential.created_by)?,
        expires_at = credential.expires_at,
        revoked_at = credential.revoked.as_ref().map(|revoked| revoked.at),
        revoked_by = credential.revoked.as_ref().map(|revoked| to_json(&revoked.by)).transpose()?,
        revoked_reason = credential.revoked.as_ref().map(|revoked| &revoked.reason),
    }
    read(row) -> Credential {
        let names =
            |column| -> Read<Names> { Ok(row::optional_json(row, column)?.map_or(Names::All, Names::Only)) };
        let principal = Principal {
            id: PrincipalId(row::uuid(row, principal)?),
            name: row.get(principal_name)?,
            kind: row::named(row::text(row, kind)?)?,
        };
        let revoked_by: Option<Actor> = row::optional_json(row, revoked_by)?;
        let revoked = match revoked_by {
            Some(by) => Some(Revocation { at: row.get(revoked_at)?, by, reason: row.get(revoked_reason)? }),
            None => None,
        };
        Ok(Credential {
            id: CredentialId(row::uuid(row, id)?),
            name: row.get(name)?,
            principal,
            hash: row::digest(row, hash)?,
            scopes: row::json(row, scopes)?,
            tenants: names(tenants)?,
            kinds: names(kinds)?,
            worker: row.get(worker)?,
            created_at: row.get(created_at)?,
            created_by: row::json(row, created_by)?,
            expires_at: row.get(expires_at)?,
            revoked,
        })
    }
}

fn credential(row: &Row<'_>) -> Read<Credential> {
    CredentialRow::read(row, 0)
}
