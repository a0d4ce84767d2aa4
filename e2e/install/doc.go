// Package install tests what a machine gets: `make install` and `make uninstall`, the Debian packages, the service's unit, and a node that runs from an
// installed tree with the parameters that `reeve init` wrote, under the limits of the unit. It has no code of its own.
package install
