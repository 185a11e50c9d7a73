//! Properties over random histories, and the runs that RFC 0005 names.

mod deleting;
mod merging;
mod reading;
mod retaining;
mod scripts;
