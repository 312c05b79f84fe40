//! Credentials: a small table of its own, away from the hot path.

use tenure_core::{CredentialId, Millis, action::Tenants, payload::Digest};
use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    read::Reader,
    row::{self, get},
    session::params,
};
use crate::{Credential, Error, credential::CREDENTIALS_MAX};

macro_rules! columns {
    () => {
        "id, name, kind, hash, scopes, tenants, created_at, expires_at, revoked_at, created_by"
    };
}

const ADD: &str = "INSERT INTO credential \
     (id, name, kind, hash, scopes, tenants, created_at, expires_at, created_by) \
     SELECT $1::uuid, $2::text, $3::text, $4::bytea, $5::text, $6::text, $7::bigint, $8::bigint, $9::text \
     WHERE (SELECT count(*) FROM credential c WHERE c.revoked_at IS NULL) < $10::bigint \
     ON CONFLICT (hash) DO NOTHING";
const BY_HASH: &str = concat!("SELECT ", columns!(), " FROM credential WHERE hash = $1::bytea");
const LIST: &str =
    concat!("SELECT ", columns!(), " FROM credential WHERE id < $1::uuid ORDER BY id DESC LIMIT $2::bigint");
/// Whether a credential opens everything by a scope, as [`Credential::opens_everything`] says.
macro_rules! opens {
    () => {
        "(c.kind = 'person' AND c.tenants IS NULL AND c.revoked_at IS NULL \
          AND (c.expires_at IS NULL OR c.expires_at > $2::bigint) AND c.scopes::jsonb ? $3::text)"
    };
}

/// Those that open everything are locked in one order first: whoever else revokes one of them waits, and then finds
/// it revoked.
const REVOKE: &str = concat!(
    "WITH held AS (SELECT c.id FROM credential c WHERE $3::text IS NOT NULL AND ",
    opens!(),
    " ORDER BY c.id FOR UPDATE) \
     UPDATE credential c SET revoked_at = coalesce(c.revoked_at, $2::bigint) WHERE c.id = $1::uuid \
     AND ((SELECT count(*) FROM held) = 0 OR (SELECT count(*) FROM held o WHERE o.id <> $1::uuid) > 0) RETURNING ",
    columns!()
);

impl Reader {
    pub async fn add_credential(&self, credential: &Credential) -> Result<(), Error> {
        let tenants = match &credential.tenants {
            Tenants::All => None,
            Tenants::Only(list) => Some(row::json(list)),
        };
        let params = params![
            credential.id.0,
            &credential.name,
            row::name(&credential.kind),
            &credential.hash.0[..],
            row::json(&credential.scopes),
            tenants,
            credential.created_at,
            credential.expires_at,
            &credential.created_by,
            CREDENTIALS_MAX as i64,
        ];
        self.write(ADD, params).await.map(drop)
    }

    pub async fn credential(&self, hash: Digest) -> Result<Option<Credential>, Error> {
        let rows = self.query(BY_HASH, params![&hash.0[..]]).await?;
        rows.first().map(credential).transpose()
    }

    pub async fn credentials(
        &self,
        before: Option<CredentialId>,
        limit: usize,
    ) -> Result<Vec<Credential>, Error> {
        let before = before.map_or(Uuid::max(), |id| id.0);
        self.query(LIST, params![before, limit as i64]).await?.iter().map(credential).collect()
    }

    pub async fn revoke_credential(
        &self,
        id: CredentialId,
        at: Millis,
        keeping: Option<&str>,
    ) -> Result<Option<Credential>, Error> {
        let rows = self.write(REVOKE, params![id.0, at, keeping]).await?;
        rows.first().map(credential).transpose()
    }
}

fn credential(row: &Row) -> Result<Credential, Error> {
    let tenants: Option<&str> = get(row, 5)?;
    Ok(Credential {
        id: CredentialId(get(row, 0)?),
        name: get(row, 1)?,
        kind: row::parse_name(get(row, 2)?)?,
        hash: row::digest(get(row, 3)?)?,
        scopes: row::parse(get(row, 4)?)?,
        tenants: tenants.map(row::parse).transpose()?.map_or(Tenants::All, Tenants::Only),
        created_at: get(row, 6)?,
        expires_at: get(row, 7)?,
        revoked_at: get(row, 8)?,
        created_by: get(row, 9)?,
    })
}
