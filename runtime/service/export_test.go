package service

// Cards is an internal function, for the external tests of this package.
var Cards = gpuStatuses
