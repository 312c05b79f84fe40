//! Access tokens: which callers may do what, for which tenants.

use serde::{Deserialize, Serialize};

use super::{Actor, PrincipalId, Timestamp, TokenId, Word, word::words};

words! {
    /// A permission of an access token.
    Scope {
        /// Reading, without payloads.
        View = "view",
        /// Reading inputs, results and answers.
        Payload = "payload",
        /// Recording work items.
        Submit = "submit",
        /// Claims and the holder's verbs.
        Work = "work",
        /// Answering waits, except approvals.
        Resolve = "resolve",
        /// Approving; only for people.
        Approve = "approve",
        /// Rerunning work items, replaying commands, and recording how one in doubt ended; only for people.
        Replay = "replay",
        /// The operators' verbs: cancel, abandon, quarantine, decide and others, but not rerun and replay.
        Operate = "operate",
        /// Tokens, pruning, backups, the intake.
        Admin = "admin",
    }
}

impl Scope {
    /// Whether no machine can have it.
    pub const fn is_for_people_only(self) -> bool {
        match self {
            Scope::Approve | Scope::Replay => true,
            Scope::View
            | Scope::Payload
            | Scope::Submit
            | Scope::Work
            | Scope::Resolve
            | Scope::Operate
            | Scope::Admin => false,
        }
    }
}

words! {
    /// Whether the token belongs to a person or a machine. Only a person's token can approve, replay and
    /// override.
    TokenKind {
        /// A person's.
        Person = "person",
        /// A program's.
        Machine = "machine",
    }
}

/// Creates an access token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Its display name.
    pub name: String,
    /// Creates a new principal of this kind, with the token's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<TokenKind>,
    /// A principal that has tokens already, instead of `kind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<PrincipalId>,
    /// Its scopes.
    pub scopes: Vec<Scope>,
    /// Omitted: every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<String>>,
    /// Omitted: every kind of work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// The only worker for which it may claim. Omitted: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// When it expires. Omitted: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// The owner of a token. Two tokens of one principal are the same person or machine; two principals may have
/// the same name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Principal {
    /// Its id.
    pub id: PrincipalId,
    /// Its display name.
    pub name: String,
}

/// The revocation of a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revocation {
    /// When it was revoked.
    pub at: Timestamp,
    /// The actor that revoked it.
    pub by: Actor,
    /// The reason.
    pub reason: String,
}

/// An access token without its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// Its display name.
    pub name: String,
    /// The principal that it belongs to.
    pub principal: Principal,
    /// Whether the principal is a person or a machine.
    #[cfg_attr(feature = "openapi", schema(value_type = TokenKind))]
    pub kind: Word<TokenKind>,
    /// Its scopes.
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
    /// When it was created.
    pub created_at: Timestamp,
    /// The actor that created it.
    pub created_by: Actor,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The revocation, if it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revocation>,
}

/// Why a token is revoked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    /// The reason; it is recorded with the token.
    pub reason: String,
}

/// A new access token with its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenMade {
    /// The token.
    pub token: Token,
    /// The secret. Returned here only.
    pub secret: String,
}
