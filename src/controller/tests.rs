//! What the controller makes of its caches, and the order of its calls against a played API server.

mod calls;
mod declined;
mod leadership;
mod occupied;
mod played;
mod revisions;
mod snapshot;
