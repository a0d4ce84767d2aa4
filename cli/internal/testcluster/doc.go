// Package testcluster gives tests a cluster with a real curator, which the program testcurator serves (plugins/curator/cmd/testcurator). The nodes are the test's: they have keys
// and certificates of the cluster, and report to the curator what the test has them report.
package testcluster
