// Package tenant knows who may use a server, what each may use, and how much of it.
//
// A tenant is one entry of the tokens file: a name with its tokens, roles, pools, models and quota.
// A plain API key, from a flag or a variable, is a tenant without limits.
//
// Entry points: Open, Access.Find, which every entrance asks with the token of a request, and
// Tenant.Take, which counts the items of a request. Access.Find has the file read again when it has
// changed: a file that cannot be used leaves the last good one in force.
//
// Tokens are kept as hashes under a key that each process makes up, so that neither memory nor the
// time of a comparison tells anything of one. What a tenant has used belongs to its name: it
// survives a reload, and the removal of the tenant while its requests run.
package tenant
