//! The history of one key, and its checker.

use parking_lot::Mutex;
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};
use std::sync::Arc;

/// An operation of a client on one key. Values are numbers, each written at most once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    Get,
    Put(u64),
    Delete,
    PutIfAbsent(u64),
    /// Puts the second if the first is the present value.
    PutIf(Option<u64>, u64),
    DeleteIf(Option<u64>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ret {
    Value(Option<u64>),
    Done,
    /// The condition did not hold.
    Conflict,
}

/// A key of a map, one operation after the other: the specification of the whole history.
#[derive(Clone, Debug, Default)]
struct Key(Option<u64>);

impl Key {
    fn set(&mut self, holds: bool, to: Option<u64>) -> Ret {
        if !holds {
            return Ret::Conflict;
        }
        self.0 = to;
        Ret::Done
    }
}

impl SequentialSpec for Key {
    type Op = Op;
    type Ret = Ret;

    fn invoke(&mut self, op: &Op) -> Ret {
        match op {
            Op::Get => Ret::Value(self.0),
            Op::Put(value) => self.set(true, Some(*value)),
            Op::Delete => self.set(true, None),
            Op::PutIfAbsent(value) => self.set(self.0.is_none(), Some(*value)),
            Op::PutIf(expected, value) => self.set(self.0 == *expected, Some(*value)),
            Op::DeleteIf(expected) => self.set(self.0 == *expected, None),
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Invoked(u64, Op),
    Returned(u64, Ret),
}

/// The events of one key, in order of time: an event is recorded before its operation begins, and
/// after it has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct History(Arc<Mutex<(u64, Vec<Event>)>>);

impl History {
    /// An operation begins; returns the id under which its end is recorded. An operation without an
    /// end may have taken effect at any later time, or never.
    pub(crate) fn invoked(&self, op: Op) -> u64 {
        let mut history = self.0.lock();
        history.0 += 1;
        let number = history.0;
        history.1.push(Event::Invoked(number, op));
        number
    }

    pub(crate) fn returned(&self, number: u64, ret: Ret) {
        self.0.lock().1.push(Event::Returned(number, ret));
    }

    /// Number of operations, and of those without an end.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let history = self.0.lock();
        let ended = history.1.iter().filter(|event| matches!(event, Event::Returned(..))).count();
        (history.0 as usize, history.0 as usize - ended)
    }

    /// Whether there is an order of the operations, each between its beginning and its end, that a
    /// single map could have gone through.
    pub(crate) fn is_linearizable(&self) -> bool {
        let mut tester = LinearizabilityTester::new(Key::default());
        // A client of the checker has one operation at a time: each number is assigned to the first
        // free client, so that few of them are sufficient.
        let mut clients: Vec<Option<u64>> = Vec::new();
        for event in self.0.lock().1.clone() {
            match event {
                Event::Invoked(number, op) => {
                    let free = clients.iter().position(Option::is_none);
                    let client = free.unwrap_or(clients.len());
                    clients.resize(clients.len().max(client + 1), None);
                    clients[client] = Some(number);
                    tester.on_invoke(client, op).expect("a free client");
                }
                Event::Returned(number, ret) => {
                    let client = clients.iter().position(|one| *one == Some(number));
                    let client = client.expect("an operation that began");
                    clients[client] = None;
                    tester.on_return(client, ret).expect("an operation that began");
                }
            }
        }
        tester.is_consistent()
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().1.iter().map(|event| format!("  {event:?}\n")).collect()
    }
}

/// Manual histories: correct ones, and each kind of mistake.
#[test]
fn the_checker_tells_right_from_wrong() {
    let history = |events: &[(u64, Option<Op>, Option<Ret>)]| {
        let history = History::default();
        for (number, op, ret) in events {
            if let Some(op) = op {
                assert_eq!(history.invoked(op.clone()), *number);
            }
            if let Some(ret) = ret {
                history.returned(*number, ret.clone());
            }
        }
        history
    };
    let at_once = |number, op: &Op, ret: Ret| (number, Some(op.clone()), Some(ret));
    let begins = |number, op: Op| (number, Some(op), None);
    let ends = |number, ret| (number, None, Some(ret));
    let (put, get) = (|value| Op::Put(value), Op::Get);
    let value = |value| Ret::Value(Some(value));
    let stale = [
        at_once(1, &put(1), Ret::Done),
        at_once(2, &put(2), Ret::Done),
        at_once(3, &get, value(1)),
    ];
    assert!(!history(&stale).is_linearizable(), "an old value after a new one");
    let concurrent = [
        at_once(1, &put(1), Ret::Done),
        begins(2, put(2)),
        at_once(3, &get, value(1)),
        at_once(4, &get, value(2)),
        ends(2, Ret::Done),
    ];
    assert!(history(&concurrent).is_linearizable());
    let back = [
        begins(1, put(1)),
        at_once(2, &get, value(1)),
        at_once(3, &get, Ret::Value(None)),
        ends(1, Ret::Done),
    ];
    assert!(!history(&back).is_linearizable(), "a value that was seen, and then was not");
    let lost = [
        at_once(1, &Op::PutIfAbsent(1), Ret::Done),
        begins(2, Op::PutIf(Some(1), 2)),
        begins(3, Op::PutIf(Some(1), 3)),
        ends(2, Ret::Done),
        ends(3, Ret::Done),
    ];
    assert!(!history(&lost).is_linearizable(), "two changes of one value");
    let unknown =
        [begins(1, put(1)), at_once(2, &get, Ret::Value(None)), at_once(3, &get, value(1))];
    assert!(history(&unknown).is_linearizable(), "one without an end may come late");
    assert_eq!(history(&unknown).counts(), (3, 1));
    let never = [begins(1, put(1)), at_once(2, &get, value(2))];
    assert!(!history(&never).is_linearizable(), "it was never written");
}
