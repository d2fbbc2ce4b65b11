//! Cases of the catalogue and rows of the matrix, at the functions that decide them.
