//! Sets of scopes. The routes themselves declare which scope they need.

use tenure_api::wire::Scope;

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u16);

impl Scopes {
    pub fn all() -> Self {
        Scope::ALL.iter().copied().collect()
    }

    /// All scopes that a machine can have.
    pub fn of_machines() -> Self {
        Self::all().iter().filter(|scope| !scope.is_for_people_only()).collect()
    }

    pub fn has(self, scope: Scope) -> bool {
        self.0 & (1 << scope as u16) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.iter().copied().filter(move |scope| self.has(*scope))
    }

    /// The names under which the ledger stores them.
    pub fn names(self) -> Vec<String> {
        self.iter().map(|scope| scope.as_str().to_owned()).collect()
    }

    /// A scope in this set that no machine can have.
    pub fn persons_only(self) -> Option<Scope> {
        self.iter().find(|scope| scope.is_for_people_only())
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<T: IntoIterator<Item = Scope>>(scopes: T) -> Self {
        Self(scopes.into_iter().fold(0, |set, scope| set | (1 << scope as u16)))
    }
}
