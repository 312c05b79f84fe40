//! Whether it pays to stay awake for what is about to come.

/// However often it was in vain, one time in 64 is tried again.
const MOST: u32 = 6;

/// To stay awake saves being woken, where what one waits for comes soon. On a slow disk it does not, and on a busy machine
/// the core goes to others meanwhile. So after each time in vain but a single one, more of the next are slept through.
#[derive(Debug, Default)]
pub(crate) struct Awake {
    in_vain: u32,
    left: u32,
}

impl Awake {
    /// Whether to stay awake this time. Whoever does tells how it went, if it comes to an end.
    pub fn pays(&mut self) -> bool {
        let sleeps = self.left > 0;
        self.left = self.left.saturating_sub(1);
        !sleeps
    }

    pub fn went(&mut self, well: bool) {
        (self.left, self.in_vain) = match well {
            true => (0, 0),
            false => ((1 << self.in_vain) - 1, (self.in_vain + 1).min(MOST)),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many times are slept through before the next try.
    fn slept(awake: &mut Awake) -> usize {
        (0..).take_while(|_| !awake.pays()).count()
    }

    #[test]
    fn what_is_in_vain_is_tried_less_and_less_until_it_pays_again() {
        let mut awake = Awake::default();
        let mut pauses = Vec::new();
        for _ in 0..8 {
            pauses.push(slept(&mut awake));
            awake.went(false);
        }
        assert_eq!(pauses, [0, 0, 1, 3, 7, 15, 31, 63]);
        assert_eq!(slept(&mut awake), 63);
        awake.went(true);
        assert!(awake.pays() && awake.pays());
    }
}
