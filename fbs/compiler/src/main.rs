//! Prints the path of the FlatBuffers compiler that the `flatc` crate built.

fn main() {
    println!("{}", flatc::flatc().display());
}
