//! Credentials: a small table of its own, away from the hot path.

use tenure_core::{Actor, CredentialId, PrincipalId, action::Names, payload::Digest};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Postgres,
    connection::params,
    row::{self, get},
};
use crate::{
    Credential, Error, Listed, Principal, Revocation,
    credential::CREDENTIALS_MAX,
    store::{CredentialStore, Store, StoreFuture},
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
     SELECT $1::uuid, $2::text, $3::uuid, $4::text, $5::text, $6::bytea, $7::text, $8::text, $9::text, $10::text, \
     $11::bigint, $12::text, $13::bigint, $15::bytea \
     WHERE (SELECT count(*) FROM credential c WHERE c.revoked_at IS NULL) < $14::bigint \
     ON CONFLICT (hash) DO NOTHING";
const BY_HASH: &str = concat!("SELECT ", columns!(), " FROM credential WHERE hash = $1::bytea");
const LIST: &str =
    concat!("SELECT ", columns!(), " FROM credential WHERE id < $1::uuid ORDER BY id DESC LIMIT $2::bigint");
const OF: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM credential WHERE principal = $1::uuid ORDER BY id DESC LIMIT $2::bigint"
);
const BY_ID: &str = concat!("SELECT ", columns!(), " FROM credential WHERE id = $1::uuid");
const COUNT: &str = "SELECT count(*) FROM credential WHERE revoked_at IS NULL \
     AND ($1::text IS NULL OR EXISTS (SELECT 1 FROM json_array_elements_text(tenants::json) t(name) WHERE t.name = $1))";
const REVOKED: &str = "SELECT id FROM credential WHERE id = ANY($1::uuid[]) AND revoked_at IS NOT NULL";
/// Whether a credential opens everything by these scopes, as [`Credential::opens_everything`] says.
macro_rules! opens {
    () => {
        "(c.kind = 'person' AND c.tenants IS NULL AND c.kinds IS NULL AND c.worker IS NULL AND c.revoked_at IS NULL \
          AND (c.expires_at IS NULL OR c.expires_at > $2::bigint) AND c.scopes::jsonb @> $3::text::jsonb)"
    };
}

/// Those that open everything are locked in one order first: whoever else revokes one of them waits, and then finds
/// it revoked. The new MAC ($7) takes the place of the old one ($6), and of no other: a credential that somebody changed
/// stays without one of its own.
const REVOKE: &str = concat!(
    "WITH held AS (SELECT c.id FROM credential c WHERE $3::text IS NOT NULL AND ",
    opens!(),
    " ORDER BY c.id FOR UPDATE) \
     UPDATE credential c SET revoked_at = coalesce(c.revoked_at, $2::bigint), \
     revoked_by = coalesce(c.revoked_by, $4::text), revoked_reason = coalesce(c.revoked_reason, $5::text), \
     mac = CASE WHEN c.revoked_at IS NULL AND c.mac = $6::bytea THEN $7::bytea ELSE c.mac END \
     WHERE c.id = $1::uuid \
     AND ((SELECT count(*) FROM held) = 0 OR (SELECT count(*) FROM held o WHERE o.id <> $1::uuid) > 0) RETURNING ",
    columns!()
);

impl CredentialStore for Postgres {
    fn add_credential<'a>(&'a self, credential: &'a Credential) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let mac = self.key().row_mac(credential);
            let params = params![
                credential.id.0,
                &credential.name,
                credential.principal.id.0,
                &credential.principal.name,
                row::name(&credential.principal.kind),
                &credential.hash.0[..],
                row::json(&credential.scopes),
                listed(&credential.tenants),
                listed(&credential.kinds),
                credential.worker.as_deref(),
                credential.created_at,
                row::json(&credential.created_by),
                credential.expires_at,
                CREDENTIALS_MAX as i64,
                &mac.0[..],
            ];
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

pub(super) fn credential(row: &Row) -> Result<Credential, Error> {
    let names = |at| -> Result<Names, Error> {
        let list: Option<&str> = get(row, at)?;
        Ok(list.map(row::parse).transpose()?.map_or(Names::All, Names::Only))
    };
    let principal =
        Principal { id: PrincipalId(get(row, 2)?), name: get(row, 3)?, kind: row::parse_name(get(row, 4)?)? };
    let revoked_by: Option<Actor> = get::<Option<&str>>(row, 14)?.map(row::parse).transpose()?;
    let revoked = match revoked_by {
        Some(by) => Some(Revocation { at: get(row, 13)?, by, reason: get(row, 15)? }),
        None => None,
    };
    Ok(Credential {
        id: CredentialId(get(row, 0)?),
        name: get(row, 1)?,
        principal,
        hash: row::digest(get(row, 5)?)?,
        scopes: row::parse(get(row, 6)?)?,
        tenants: names(7)?,
        kinds: names(8)?,
        worker: get(row, 9)?,
        created_at: get(row, 10)?,
        created_by: row::parse(get(row, 11)?)?,
        expires_at: get(row, 12)?,
        revoked,
    })
}
