//! Credentials: a small table of its own, away from the hot path.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tenure_core::{CredentialId, Millis, action::Tenants, payload::Digest};

use super::{
    read::{Reader, bound},
    row::{self, Read, name_of, to_json},
};
use crate::{Credential, credential::CREDENTIALS_MAX};

macro_rules! columns {
    () => {
        "id, name, kind, hash, scopes, tenants, created_at, expires_at, revoked_at, created_by"
    };
}

const ADD: &str = "INSERT INTO credential \
     (id, name, kind, hash, scopes, tenants, created_at, expires_at, created_by) \
     SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 \
     WHERE (SELECT count(*) FROM credential WHERE revoked_at IS NULL) < ?10 ON CONFLICT (hash) DO NOTHING";
const BY_HASH: &str = concat!("SELECT ", columns!(), " FROM credential WHERE hash = ?1");
const LIST: &str = concat!("SELECT ", columns!(), " FROM credential WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
/// Whether a credential opens everything by a scope, as [`Credential::opens_everything`] says.
macro_rules! opens {
    ($one:literal) => {
        concat!(
            "(",
            $one,
            ".kind = 'person' AND ",
            $one,
            ".tenants IS NULL AND ",
            $one,
            ".revoked_at IS NULL \
             AND (",
            $one,
            ".expires_at IS NULL OR ",
            $one,
            ".expires_at > ?2) \
             AND EXISTS (SELECT 1 FROM json_each(",
            $one,
            ".scopes) s WHERE s.value = ?3))"
        )
    };
}

/// One statement: nobody else writes while it judges.
const REVOKE: &str = concat!(
    "UPDATE credential AS c SET revoked_at = coalesce(c.revoked_at, ?2) WHERE c.id = ?1 AND (?3 IS NULL OR NOT ",
    opens!("c"),
    " OR EXISTS (SELECT 1 FROM credential o WHERE o.id <> ?1 AND ",
    opens!("o"),
    ")) RETURNING ",
    columns!()
);

pub(super) fn add(conn: &Connection, credential: &Credential) -> Read<()> {
    let tenants = match &credential.tenants {
        Tenants::All => None,
        Tenants::Only(list) => Some(to_json(list)?),
    };
    conn.prepare_cached(ADD)?.execute(params![
        credential.id.0.as_bytes(),
        credential.name,
        name_of(credential.kind),
        credential.hash.0,
        to_json(&credential.scopes)?,
        tenants,
        credential.created_at,
        credential.expires_at,
        credential.created_by,
        bound(CREDENTIALS_MAX),
    ])?;
    Ok(())
}

pub(super) fn revoke(
    conn: &Connection,
    id: CredentialId,
    at: Millis,
    keeping: Option<&str>,
) -> Read<Option<Credential>> {
    let mut statement = conn.prepare_cached(REVOKE)?;
    statement
        .query_row(params![id.0.as_bytes(), at, keeping], |row| Ok(credential(row)))
        .optional()?
        .transpose()
}

impl Reader {
    pub fn credential(&mut self, hash: Digest) -> Read<Option<Credential>> {
        Ok(self.all(BY_HASH, [hash.0], credential)?.into_iter().next())
    }

    pub fn credentials(&mut self, before: Option<CredentialId>, limit: usize) -> Read<Vec<Credential>> {
        let before = before.map_or(vec![0xff; 17], |id| id.0.as_bytes().to_vec());
        self.all(LIST, params![before, bound(limit)], credential)
    }
}

fn credential(row: &Row<'_>) -> Read<Credential> {
    Ok(Credential {
        id: CredentialId(row::uuid(row, 0)?),
        name: row.get(1)?,
        kind: row::named(row::text(row, 2)?)?,
        hash: row::digest(row, 3)?,
        scopes: row::json(row, 4)?,
        tenants: row::optional_json(row, 5)?.map_or(Tenants::All, Tenants::Only),
        created_at: row.get(6)?,
        expires_at: row.get(7)?,
        revoked_at: row.get(8)?,
        created_by: row.get(9)?,
    })
}
