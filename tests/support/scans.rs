//! Rows of a scan, with as many fetches as necessary.

use siltstone::{Database, FillOutcome, Rows, Scan, ScanRange};
use siltstone_base::Result;

/// Rows in order: keys and values.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// The next rows, at most `limit`.
///
/// # Errors
/// Errors of the scan.
pub async fn some(scan: &mut Scan, limit: usize) -> Result<Pairs> {
    let (mut rows, mut all) = (Rows::new(), Vec::new());
    while all.len() < limit {
        let filled = scan.fill(&mut rows, limit - all.len(), 1 << 20)?;
        let pairs = (0..rows.len()).filter_map(|row| rows.row(row));
        all.extend(pairs.map(|(key, value)| (key.to_vec(), value.to_vec())));
        rows.clear();
        match filled {
            FillOutcome::End => break,
            FillOutcome::Full => {}
            FillOutcome::NeedsBlocks => scan.fetch().await?,
        }
    }
    Ok(all)
}

/// All remaining rows of a scan.
///
/// # Errors
/// Errors of the scan.
pub async fn rest(mut scan: Scan) -> Result<Pairs> {
    some(&mut scan, usize::MAX).await
}

/// All rows of a writer.
///
/// # Errors
/// Errors of the scan.
pub async fn all(db: &Database) -> Result<Pairs> {
    rest(db.scan(ScanRange::all())?).await
}

/// All keys of a writer, which are text.
///
/// # Errors
/// Errors of the scan.
pub async fn keys(db: &Database) -> Result<Vec<String>> {
    let rows = all(db).await?;
    Ok(rows.iter().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect())
}
