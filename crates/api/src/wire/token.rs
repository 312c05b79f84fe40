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
        Submit = "submit",
        /// Claims and the holder's verbs.
        Work = "work",
        Resolve = "resolve",
        Approve = "approve",
        Replay = "replay",
        Operate = "operate",
        Admin = "admin",
    }
}

words! {
    /// Whose it is. Only a person's token approves, replays and overrides.
    TokenKind {
        Person = "person",
        Machine = "machine",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    pub name: String,
    /// For a new principal of this kind, called as the token is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<TokenKind>,
    /// For a principal that has tokens already, instead of `kind`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<PrincipalId>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// Who a token belongs to. Two tokens of one principal are the same person or machine; two principals may have the same name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Principal {
    pub id: PrincipalId,
    pub name: String,
}

/// The end of a token before its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revocation {
    pub at: Timestamp,
    pub by: Actor,
    pub reason: String,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Token {
    pub id: TokenId,
    pub name: String,
    pub principal: Principal,
    #[cfg_attr(feature = "openapi", schema(value_type = TokenKind))]
    pub kind: Word<TokenKind>,
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
    pub created_at: Timestamp,
    pub created_by: Actor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenMade {
    pub token: Token,
    /// Shown here only.
    pub secret: String,
}
