//! Credentials on the wire.

use tenure_api::wire as w;
use tenure_core::action::Tenants;
use tenure_store::Credential;

use super::{ToCore, ToWire, at};
use crate::auth::NewToken;

pub(crate) fn new_token(new: w::NewToken) -> NewToken {
    NewToken {
        name: new.name,
        kind: new.kind.to_core(),
        scopes: new.scopes.into_iter().collect(),
        tenants: new.tenants.map_or(Tenants::All, Tenants::Only),
        expires_at: new.expires_at.map(|at| at.0),
    }
}

pub(crate) fn token(credential: &Credential) -> w::Token {
    w::Token {
        id: credential.id.to_string().into(),
        name: credential.name.clone(),
        kind: credential.kind.to_wire().into(),
        scopes: credential
            .scopes
            .iter()
            .map(|scope| scope.parse().map_or_else(|_| w::Word::Other(scope.clone()), w::Word::Known))
            .collect(),
        tenants: match &credential.tenants {
            Tenants::All => None,
            Tenants::Only(tenants) => Some(tenants.clone()),
        },
        created_at: at(credential.created_at),
        created_by: Some(credential.created_by.clone()),
        expires_at: credential.expires_at.map(at),
        revoked_at: credential.revoked_at.map(at),
    }
}
