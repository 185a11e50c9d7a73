//! The layers of the tree.

use std::fmt;

/// A layer of the tree. The order is by age: first the runs by id, then L0 by order; larger is
/// newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// The sorted run with this id.
    Run(u32),
    /// The layer of L0 with this order.
    L0(u64),
}

impl Layer {
    /// Whether it belongs to L0.
    #[must_use]
    pub fn is_l0(self) -> bool {
        matches!(self, Layer::L0(_))
    }
}

impl fmt::Display for Layer {
    /// The name for error texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::Run(id) => write!(f, "run {id}"),
            Layer::L0(order) => write!(f, "L0 layer {order}"),
        }
    }
}
