//! Credentials on the wire.

use tenure_api::wire as w;
use tenure_core::{Code, Refusal, action::Names};
use tenure_store::{Credential, Pruning};

use super::{ToCore, ToWire, actor, at};
use crate::auth::{NewToken, Owner};

pub(crate) fn new_token(new: w::NewToken) -> Result<NewToken, Refusal> {
    let owner = match (new.principal, new.kind) {
        (Some(id), None) => Owner::Known(id.as_str().parse()?),
        (None, Some(kind)) => Owner::New(kind.to_core()),
        (Some(_), Some(_)) | (None, None) => {
            let detail = "Give `kind` for a new principal, or `principal` for an existing one; not both.";
            return Err(Refusal::new(Code::Invalid, detail));
        }
    };
    Ok(NewToken {
        name: new.name,
        owner,
        scopes: new.scopes.into_iter().collect(),
        tenants: new.tenants.map_or(Names::All, Names::Only),
        kinds: new.kinds.map_or(Names::All, Names::Only),
        worker: new.worker,
        expires_at: new.expires_at.map(|at| at.0),
    })
}

pub(crate) fn token(credential: &Credential) -> w::Token {
    let principal = &credential.principal;
    w::Token {
        id: credential.id.to_string().into(),
        name: credential.name.clone(),
        principal: w::Principal { id: principal.id.to_string().into(), name: principal.name.clone() },
        kind: principal.kind.to_wire().into(),
        scopes: credential
            .scopes
            .iter()
            .map(|scope| scope.parse().map_or_else(|_| w::Word::Other(scope.clone()), w::Word::Known))
            .collect(),
        tenants: listed(&credential.tenants),
        kinds: listed(&credential.kinds),
        worker: credential.worker.clone(),
        created_at: at(credential.created_at),
        created_by: actor(&credential.created_by),
        expires_at: credential.expires_at.map(at),
        revoked: credential.revoked.as_ref().map(|revoked| w::Revocation {
            at: at(revoked.at),
            by: actor(&revoked.by),
            reason: revoked.reason.clone(),
        }),
    }
}

fn listed(names: &Names) -> Option<Vec<String>> {
    match names {
        Names::All => None,
        Names::Only(list) => Some(list.clone()),
    }
}

pub(crate) fn pruning(pruning: &Pruning) -> w::Pruning {
    w::Pruning {
        at: at(pruning.at),
        by: actor(&pruning.actor),
        reason: pruning.reason.clone(),
        before: at(pruning.ended_before),
        works: pruning.works,
    }
}
