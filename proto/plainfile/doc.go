// Package plainfile opens files that people name. A pipe nobody writes to would hold the caller up for ever, and a device may have no end: both are refused at once. It owns no state.
package plainfile
