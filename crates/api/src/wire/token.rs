//! Access tokens: who may call, for which tenants, and what.

use serde::{Deserialize, Serialize};

use super::{Actor, PrincipalId, Timestamp, TokenId, Word, word::words};

words! {
    /// What a token may do.
    Scope {
        /// Reads, without payloads.
        View = "view",
        /// Inputs, results and answers in reads.
        Payload = "payload",
        /// Recording works.
        Submit = "submit",
        /// Claims and the holder's verbs.
        Work = "work",
        /// Answering waits that are no approvals.
        Resolve = "resolve",
        /// Approving; only for people.
        Approve = "approve",
        /// Having a command done again, and recording how one in doubt went; only for people.
        Replay = "replay",
        /// The operators' verbs: cancel, quarantine, rerun and others.
        Operate = "operate",
        /// Tokens, pruning, backups, the intake.
        Admin = "admin",
    }
}

words! {
    /// Whose it is. Only a person's token approves, replays and overrides.
    TokenKind {
        /// A person's.
        Person = "person",
        /// A program's.
        Machine = "machine",
    }
}

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What it is called.
    pub name: String,
    /// For a new principal of this kind, called as the token is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<TokenKind>,
    /// For a principal that has tokens already, instead of `kind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<PrincipalId>,
    /// What it may do.
    pub scopes: Vec<Scope>,
    /// Left out: every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<String>>,
    /// Left out: every kind of work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// The only worker for which it claims. Left out: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// When it ends by itself. Left out: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// Who a token belongs to. Two tokens of one principal are the same person or machine; two principals may have the same name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Principal {
    /// Its id.
    pub id: PrincipalId,
    /// Its display name.
    pub name: String,
}

/// The end of a token before its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revocation {
    /// When it was ended.
    pub at: Timestamp,
    /// Who ended it.
    pub by: Actor,
    /// Why.
    pub reason: String,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// What it is called.
    pub name: String,
    /// Who it belongs to.
    pub principal: Principal,
    /// Whether that is a person or a machine.
    #[cfg_attr(feature = "openapi", schema(value_type = TokenKind))]
    pub kind: Word<TokenKind>,
    /// What it may do.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Scope>))]
    pub scopes: Vec<Word<Scope>>,
    /// Absent: every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<String>>,
    /// Absent: every kind of work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// Absent: any worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: Actor,
    /// When it ends by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Who ended it, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revocation>,
}

/// Why a token is ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    /// Kept with the token.
    pub reason: String,
}

/// A token with its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenMade {
    /// The token.
    pub token: Token,
    /// Shown here only.
    pub secret: String,
}
