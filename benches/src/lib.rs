//! Shared inputs of the benches; the benches themselves come with the speed issue.
