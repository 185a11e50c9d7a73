//! Stores over other stores: the methods that they pass on unchanged.

/// Passes methods of a `Store`, or of an `Upload`, on to a field unchanged. A store that changes
/// one method defines that method and passes the rest on:
///
/// ```text
/// impl Store for Slow {
///     passed_on!(store: get, upload, list, delete);
///
///     fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> { … }
/// }
/// ```
/// `objects` stands for all methods about objects except [`Store::get_table`], and `facts` for the
/// profile, the place, the log, and what a store observes. Methods that are not listed keep their
/// default, which answers from the methods of this store.
///
/// [`Store::get_table`]: crate::Store::get_table
#[macro_export]
macro_rules! passed_on {
    ($to:ident: $($method:ident),+ $(,)?) => { $($crate::passed_on!(@$method $to);)+ };
    (@objects $to:ident) => {
        $crate::passed_on!(
            $to: get, get_tagged, get_clamped, put_if_absent, upload, list, list_job, names,
            deletes, sweep, ensure_conditions, at_rest
        );
    };
    (@deletes $to:ident) => { $crate::passed_on!($to: delete, delete_many, names_a_delete); };
    (@facts $to:ident) => { $crate::passed_on!($to: profile, place, log, observed, unanswered); };
    (@get $to:ident) => {
        fn get(
            &self,
            name: ::siltstone_base::ObjectName,
            range: Option<::std::ops::Range<u64>>,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<Option<::bytes::Bytes>>> {
            self.$to.get(name, range)
        }
    };
    (@get_tagged $to:ident) => {
        fn get_tagged(
            &self,
            name: ::siltstone_base::ObjectName,
        ) -> ::futures::future::BoxFuture<
            '_,
            ::siltstone_base::Result<Option<$crate::TaggedBytes>>,
        > {
            self.$to.get_tagged(name)
        }
    };
    (@get_clamped $to:ident) => {
        fn get_clamped(
            &self,
            name: ::siltstone_base::ObjectName,
            range: ::std::ops::Range<u64>,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<Option<::bytes::Bytes>>> {
            self.$to.get_clamped(name, range)
        }
    };
    (@put_if_absent $to:ident) => {
        fn put_if_absent(
            &self,
            name: ::siltstone_base::ObjectName,
            bytes: ::bytes::Bytes,
        ) -> ::futures::future::BoxFuture<'_, $crate::PutAnswer> {
            self.$to.put_if_absent(name, bytes)
        }
    };
    (@upload $to:ident) => {
        fn upload(
            &self,
            name: ::siltstone_base::ObjectName,
        ) -> ::futures::future::BoxFuture<
            '_,
            ::siltstone_base::Result<Box<dyn $crate::Upload>>,
        > {
            self.$to.upload(name)
        }
    };
    (@list $to:ident) => {
        fn list(
            &self,
            prefix: &'static str,
            after: Option<::siltstone_base::ObjectName>,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<Vec<$crate::Listed>>> {
            self.$to.list(prefix, after)
        }
    };
    (@list_job $to:ident) => {
        fn list_job(
            &self,
            job: ::siltstone_base::JobId,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<Vec<$crate::Listed>>> {
            self.$to.list_job(job)
        }
    };
    (@names $to:ident) => {
        fn names(
            &self,
            prefix: &'static str,
            after: Option<::siltstone_base::ObjectName>,
        ) -> ::futures::future::BoxFuture<
            '_,
            ::siltstone_base::Result<Vec<::siltstone_base::ObjectName>>,
        > {
            self.$to.names(prefix, after)
        }
    };
    (@delete $to:ident) => {
        fn delete(
            &self,
            name: ::siltstone_base::ObjectName,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<()>> {
            self.$to.delete(name)
        }
    };
    (@delete_many $to:ident) => {
        fn delete_many(
            &self,
            names: Vec<::siltstone_base::ObjectName>,
        ) -> ::futures::future::BoxFuture<'_, Vec<::siltstone_base::Result<()>>> {
            self.$to.delete_many(names)
        }
    };
    (@names_a_delete $to:ident) => {
        fn names_a_delete(&self) -> usize {
            self.$to.names_a_delete()
        }
    };
    (@sweep $to:ident) => {
        fn sweep(
            &self,
            cutoff: ::siltstone_base::UnixMillis,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<$crate::SweepReport>> {
            self.$to.sweep(cutoff)
        }
    };
    (@ensure_conditions $to:ident) => {
        fn ensure_conditions(
            &self,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<()>> {
            self.$to.ensure_conditions()
        }

        fn begin_proof(
            &self,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<bool>> {
            self.$to.begin_proof()
        }
    };
    (@at_rest $to:ident) => {
        fn at_rest(&self) -> ::futures::future::BoxFuture<'_, ()> {
            self.$to.at_rest()
        }
    };
    (@unanswered $to:ident) => {
        fn unanswered(&self) -> Option<String> {
            self.$to.unanswered()
        }
    };
    (@profile $to:ident) => {
        fn profile(&self) -> $crate::profile::Profile {
            self.$to.profile()
        }
    };
    (@observed $to:ident) => {
        fn observed(&self) -> $crate::Observed {
            self.$to.observed()
        }
    };
    (@reads $to:ident) => {
        fn reads(&self) -> &dyn $crate::LocalReads {
            self.$to.reads()
        }
    };
    (@place $to:ident) => {
        fn place(&self) -> &dyn $crate::Place {
            self.$to.place()
        }
    };
    (@neighbours $to:ident) => {
        fn neighbours(&self) -> &dyn $crate::Neighbours {
            self.$to.neighbours()
        }
    };
    (@log $to:ident) => {
        fn log(&self) -> &dyn $crate::LogStore {
            self.$to.log()
        }
    };
    (@write $to:ident) => {
        fn write(
            &mut self,
            chunk: ::bytes::Bytes,
        ) -> ::futures::future::BoxFuture<'_, ::siltstone_base::Result<()>> {
            self.$to.write(chunk)
        }
    };
    (@abort $to:ident) => {
        fn abort(
            self: Box<Self>,
        ) -> ::futures::future::BoxFuture<'static, ::siltstone_base::Result<()>> {
            self.$to.abort()
        }
    };
}
