//! Credentials: a small table that the write path does not use.

use tenure_core::{Actor, CredentialId, PrincipalId, action::Names, payload::Digest};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Postgres,
    connection::params,
    row::{self, get},
    table::table,
};
use crate::{
    Credential, Error, Listed, Principal, Revocation,
    columns::{MAC, names, statement, text, values},
    credential::CREDENTIALS_MAX,
    store::{CredentialStore, Store, StoreFuture},
};

const ADD: &str = statement!(
    "INSERT INTO credential (" { names(CredentialRow::COLUMNS) } ", " { names(MAC) }
    ") SELECT " { values(CredentialRow::COLUMNS, 2) } ", " { values(MAC, 2 + CredentialRow::COLUMNS.len()) }
    " WHERE (SELECT count(*) FROM credential c WHERE c.revoked_at IS NULL) < $1::bigint \
     ON CONFLICT (hash) DO NOTHING"
);
const BY_HASH: &str =
    statement!("SELECT " { names(CredentialRow::COLUMNS) } " FROM credential WHERE hash = $1::bytea");
const LIST: &str = statement!(
    "SELECT " { names(CredentialRow::COLUMNS) }
    " FROM credential WHERE id < $1::uuid ORDER BY id DESC LIMIT $2::bigint"
);
const OF: &str = statement!(
    "SELECT " { names(CredentialRow::COLUMNS) }
    " FROM credential WHERE principal = $1::uuid ORDER BY id DESC LIMIT $2::bigint"
);
const BY_ID: &str =
    statement!("SELECT " { names(CredentialRow::COLUMNS) } " FROM credential WHERE id = $1::uuid");
const COUNT: &str = "SELECT count(*) FROM credential WHERE revoked_at IS NULL \
     AND ($1::text IS NULL OR EXISTS (SELECT 1 FROM json_array_elements_text(tenants::json) t(name) WHERE t.name = $1))";
const REVOKED: &str = "SELECT id FROM credential WHERE id = ANY($1::uuid[]) AND revoked_at IS NOT NULL";
/// Whether a credential opens everything by these scopes, as in [`Credential::opens_everything`].
macro_rules! opens {
    () => {
        "(c.kind = 'person' AND c.tenants IS NULL AND c.kinds IS NULL AND c.worker IS NULL AND c.revoked_at IS NULL \
          AND (c.expires_at IS NULL OR c.expires_at > $2::bigint) AND c.scopes::jsonb @> $3::text::jsonb)"
    };
}

/// Credentials that open everything are locked first, in one order: a concurrent revocation of one of them waits, and
/// then finds it revoked. The new MAC ($7) replaces only the old one ($6): a credential that was changed by hand keeps
/// a wrong MAC.
const REVOKE: &str = statement!(
    "WITH held AS (SELECT c.id FROM credential c WHERE $3::text IS NOT NULL AND "
    { text(opens!()) }
    " ORDER BY c.id FOR UPDATE) \
     UPDATE credential c SET revoked_at = coalesce(c.revoked_at, $2::bigint), \
     revoked_by = coalesce(c.revoked_by, $4::text), revoked_reason = coalesce(c.revoked_reason, $5::text), \
     mac = CASE WHEN c.revoked_at IS NULL AND c.mac = $6::bytea THEN $7::bytea ELSE c.mac END \
     WHERE c.id = $1::uuid \
     AND ((SELECT count(*) FROM held) = 0 OR (SELECT count(*) FROM held o WHERE o.id <> $1::uuid) > 0) RETURNING "
    { names(CredentialRow::COLUMNS) }
);

impl CredentialStore for Postgres {
    fn add_credential<'a>(&'a self, credential: &'a Credential) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mac = self.key().row_mac(credential);
            let mut params = params![CREDENTIALS_MAX as i64];
            CredentialRow::bind(credential, &mut params);
            params.extend(params![mac.0.to_vec()]);
            self.points.write(ADD, params).await.map(drop)
        })
    }

    fn credential(&self, hash: Digest) -> StoreFuture<'_, Option<Credential>> {
        Box::pin(async move {
            let rows = self.credentials.query_own(BY_HASH, params![&hash.0[..]]).await?;
            rows.first().map(credential).transpose()
        })
    }

    fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> StoreFuture<'_, Listed<Credential, CredentialId>> {
        Box::pin(async move {
            let before = before.map_or(Uuid::max(), |id| id.0);
            let rows = self.lists.query(LIST, params![before, limit as i64]).await?;
            row::listed(&rows, limit, |row| get(row, 0).map(CredentialId), credential)
        })
    }

    fn credentials_of(&self, principal: PrincipalId, limit: usize) -> StoreFuture<'_, Vec<Credential>> {
        Box::pin(async move {
            self.points.query(OF, params![principal.0, limit as i64]).await?.iter().map(credential).collect()
        })
    }

    fn count_credentials<'a>(&'a self, tenant: Option<&'a str>) -> StoreFuture<'a, u64> {
        Box::pin(async move {
            let tenant = tenant.map(str::to_owned);
            let rows = self.points.query(COUNT, params![tenant]).await?;
            Ok(get::<i64>(&rows[0], 0)? as u64)
        })
    }

    fn revoked_among<'a>(&'a self, ids: &'a [CredentialId]) -> StoreFuture<'a, Vec<CredentialId>> {
        Box::pin(async move {
            let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
            let rows = self.points.query(REVOKED, params![ids]).await?;
            rows.iter().map(|row| get(row, 0).map(CredentialId)).collect()
        })
    }

    fn revoke_credential<'a>(
        &'a self,
        id: CredentialId,
        revocation: &'a Revocation,
        keeping: Option<&'a [String]>,
    ) -> StoreFuture<'a, Option<Credential>> {
        Box::pin(async move {
            let key = self.key();
            let rows = self.points.query_own(BY_ID, params![id.0]).await?;
            let Some(found) = rows.first().map(credential).transpose()? else { return Ok(None) };
            let before = key.row_mac(&found).0;
            let after = key.row_mac(&Credential { revoked: Some(revocation.clone()), ..found }).0;
            let Revocation { at, by, reason } = revocation;
            let keeping = keeping.map(|scopes| row::json(&scopes));
            let params = params![id.0, *at, keeping, row::json(by), reason, &before[..], &after[..]];
            let rows = self.points.write(REVOKE, params).await?;
            rows.first().map(credential).transpose()
        })
    }
}

fn listed(names: &Names) -> Option<String> {
    match names {
        Names::All => None,
        Names::Only(list) => Some(row::json(list)),
    }
}

table! {
    /// A credential. Its MAC is in the next column.
    one pub(super) CredentialRow(credential: Credential) {
        id: "uuid" = credential.id.0,
        name: "text" = credential.name.as_str(),
        principal: "uuid" = credential.principal.id.0,
        principal_name: "text" = credential.principal.name.as_str(),
        kind: "text" = row::name(&credential.principal.kind),
        hash: "bytea" = &credential.hash.0[..],
        scopes: "text" = row::json(&credential.scopes),
        tenants: "text" = listed(&credential.tenants),
        kinds: "text" = listed(&credential.kinds),
        worker: "text" = credential.worker.as_deref(),
        created_at: "bigint" = credential.created_at,
        created_by: "text" = row::json(&credential.created_by),
        expires_at: "bigint" = credential.expires_at,
        revoked_at: "bigint" = credential.revoked.as_ref().map(|revoked| revoked.at),
        revoked_by: "text" = credential.revoked.as_ref().map(|revoked| row::json(&revoked.by)),
        revoked_reason: "text" = credential.revoked.as_ref().map(|revoked| revoked.reason.as_str()),
    }
    read(row) -> Credential {
        let names = |at| -> Result<Names, Error> {
            let list: Option<&str> = get(row, at)?;
            Ok(list.map(row::parse).transpose()?.map_or(Names::All, Names::Only))
        };
        let principal = Principal {
            id: PrincipalId(get(row, principal)?),
            name: get(row, principal_name)?,
            kind: row::parse_name(get(row, kind)?)?,
        };
        let revoked_by: Option<Actor> = get::<Option<&str>>(row, revoked_by)?.map(row::parse).transpose()?;
        let revoked = match revoked_by {
            Some(by) => Some(Revocation { at: get(row, revoked_at)?, by, reason: get(row, revoked_reason)? }),
            None => None,
        };
        Ok(Credential {
            id: CredentialId(get(row, id)?),
            name: get(row, name)?,
            principal,
            hash: row::digest(get(row, hash)?)?,
            scopes: row::parse(get(row, scopes)?)?,
            tenants: names(tenants)?,
            kinds: names(kinds)?,
            worker: get(row, worker)?,
            created_at: get(row, created_at)?,
            created_by: row::parse(get(row, created_by)?)?,
            expires_at: get(row, expires_at)?,
            revoked,
        })
    }
}

fn credential(row: &Row) -> Result<Credential, Error> {
    CredentialRow::read(row, 0)
}
