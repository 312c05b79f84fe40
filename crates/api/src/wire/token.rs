//! Access tokens: who may call, for which tenants, and what.

use serde::{Deserialize, Serialize};

use super::{Timestamp, TokenId, Word, word::words};

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
    pub kind: TokenKind,
    pub scopes: Vec<Scope>,
    /// Left out: every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A token without its secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Token {
    pub id: TokenId,
    pub name: String,
    #[cfg_attr(feature = "openapi", schema(value_type = TokenKind))]
    pub kind: Word<TokenKind>,
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Scope>))]
    pub scopes: Vec<Word<Scope>>,
    /// Absent: every tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<String>>,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// Why a token is ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
#[serde(deny_unknown_fields)]
pub struct RevokeToken {
    /// For the daemon's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenMade {
    pub token: Token,
    /// Shown here only.
    pub secret: String,
}
