//! Properties over random histories, and the runs named in RFC 0005.

mod deleting;
mod merging;
mod reading;
mod retaining;
mod scripts;
