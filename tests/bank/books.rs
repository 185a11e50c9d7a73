//! The invariants of the books, in every view.

use crate::Pairs;
use parking_lot::Mutex;
use std::collections::BTreeMap;

pub(crate) const ACCOUNTS: u64 = 24;
const OPENED_WITH: u64 = 100;
/// The constant sum of all accounts.
pub(crate) const TOTAL: u64 = ACCOUNTS * OPENED_WITH;
const ACCOUNT: &[u8] = b"account/";
const LEDGER: &[u8] = b"ledger/";

pub(crate) fn account(number: u64) -> Vec<u8> {
    [ACCOUNT, format!("{number:02}").as_bytes()].concat()
}

/// The row that a teller writes with every transfer: the number of its transfers.
pub(crate) fn ledger(teller: u64) -> Vec<u8> {
    [LEDGER, format!("{teller:04}").as_bytes()].concat()
}

/// A number as stored: long enough to fill tables.
pub(crate) fn stored(number: u64) -> Vec<u8> {
    format!("{number:<40}").into_bytes()
}

pub(crate) fn number_in(value: &[u8]) -> u64 {
    std::str::from_utf8(value).expect("text").trim_end().parse().expect("a number")
}

/// All accounts at their opening.
pub(crate) fn opening() -> Pairs {
    (0..ACCOUNTS).map(|number| (account(number), stored(OPENED_WITH))).collect()
}

/// The transfers of each teller that were acknowledged as durable.
pub(crate) type Acknowledged = BTreeMap<u64, u64>;

#[derive(Default)]
pub(crate) struct Books {
    acknowledged: Mutex<Acknowledged>,
    /// Number of audits of each view.
    audits: Mutex<BTreeMap<&'static str, u64>>,
    troubles: Mutex<Vec<String>>,
}

impl Books {
    pub(crate) fn acknowledge(&self, teller: u64, number: u64) {
        let mut acknowledged = self.acknowledged.lock();
        let last = acknowledged.entry(teller).or_default();
        *last = number.max(*last);
    }

    /// The transfers acknowledged by now: every later read must see them.
    pub(crate) fn acknowledged(&self) -> Acknowledged {
        self.acknowledged.lock().clone()
    }

    /// A restore has undone the transfers that `rows` lacks.
    pub(crate) fn go_back_to(&self, rows: &Pairs) {
        *self.acknowledged.lock() = ledgers(rows);
    }

    /// Compares a view with the invariants: all the money, and at least the transfers acknowledged
    /// before the read.
    pub(crate) fn audit(&self, view: &'static str, rows: &Pairs, before: &Acknowledged) {
        *self.audits.lock().entry(view).or_default() += 1;
        let total = sum(rows);
        if total != TOTAL {
            self.trouble(format!("{view}: the accounts hold {total}, not {TOTAL}"));
        }
        let shown = ledgers(rows);
        for (teller, number) in before {
            let found = shown.get(teller).copied().unwrap_or_default();
            if found < *number {
                let text =
                    format!("{view}: {found} transfers of teller {teller}, {number} durable");
                self.trouble(text);
            }
        }
    }

    /// Compares two reads of one moment.
    pub(crate) fn same(&self, view: &'static str, first: &Pairs, later: &Pairs) {
        *self.audits.lock().entry(view).or_default() += 1;
        if first != later {
            self.trouble(format!("{view}: it has changed"));
        }
    }

    pub(crate) fn trouble(&self, what: String) {
        self.troubles.lock().push(what);
    }

    pub(crate) fn troubles(&self) -> Vec<String> {
        self.troubles.lock().clone()
    }

    /// Number of audits of each view; and number of acknowledged transfers.
    pub(crate) fn came_to(&self) -> (BTreeMap<&'static str, u64>, u64) {
        (self.audits.lock().clone(), self.acknowledged.lock().values().sum())
    }
}

/// The sum of the accounts among `rows`.
pub(crate) fn sum(rows: &Pairs) -> u64 {
    let accounts = rows.iter().filter(|(key, _)| key.starts_with(ACCOUNT));
    accounts.map(|(_, value)| number_in(value)).sum()
}

/// The transfers of each teller in `rows`.
pub(crate) fn ledgers(rows: &Pairs) -> Acknowledged {
    let ledgers = rows.iter().filter_map(|(key, value)| {
        let teller = key.strip_prefix(LEDGER)?;
        Some((number_in(teller), number_in(value)))
    });
    ledgers.collect()
}

#[test]
fn the_books_find_what_is_wrong() {
    let books = Books::default();
    books.acknowledge(1, 2);
    let mut rows = opening();
    rows.push((ledger(1), stored(2)));
    let before = books.acknowledged();
    books.audit("right", &rows, &before);
    books.same("right", &rows, &rows.clone());
    assert_eq!(books.troubles(), Vec::<String>::new());
    rows[3].1 = stored(99);
    rows.pop();
    books.audit("wrong", &rows, &before);
    books.same("wrong", &rows, &opening());
    assert_eq!(books.troubles().len(), 3, "{:?}", books.troubles());
}
