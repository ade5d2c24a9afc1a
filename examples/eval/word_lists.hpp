// The names and words of the texts for retrieval, separated by spaces.
#pragma once

namespace eval {

constexpr const char names[] =
    "Aaron Abigail Adam Adrian Agnes Alan Albert Alex Alfred Alice Alison Amanda Amber Amos Amy Andrea Andrew Angela "
    "Anna Anthony April Arnold Arthur Ashley Audrey Austin Barbara Barry Beatrice Ben Bernard Bertha Beth Betty "
    "Beverly Bill Blake Bob Bonnie Boris Brad Brandon Brenda Brian Bridget Bruce Bruno Caleb Calvin Cameron Carl "
    "Carla Carlos Carmen Carol Caroline Casey Catherine Cecil Charles Charlotte Chester Chloe Chris Cindy Claire "
    "Clara Clark Claude Clifford Clyde Cody Colin Connie Connor Conrad Cora Craig Crystal Curtis Cynthia Daisy Dale "
    "Damian Dana Daniel Daphne Darren David Dawn Dean Deborah Dennis Derek Diana Diego Dolores Dominic Don Donna Dora "
    "Doris Dorothy Douglas Duncan Dylan Earl Edgar Edith Edmund Edna Edward Edwin Eileen Elaine Eleanor Eli Elias "
    "Elise Ella Ellen Elliot Elmer Elsie Emily Emma Eric Erica Erin Ernest Esther Ethan Eugene Eva Evan Evelyn Faith "
    "Felix Fiona Florence Floyd Frances Francis Frank Fred Gabriel Gail Gary Gavin Gene George Gerald Gilbert Gina "
    "Gladys Glen Gloria Gordon Grace Graham Grant Greg Gregory Hannah Harold Harriet Harry Harvey Hazel Heather "
    "Hector Helen Henry Herbert Herman Hilda Holly Homer Hope Howard Hugh Hugo Ian Ida Igor Irene Iris Irving Isaac "
    "Isabel Ivan Ivy Jack Jacob Jake James Jane Janet Jason Jasper Jean Jeffrey Jenny Jeremy Jerome Jesse Jessica "
    "Jill Jim Joan Joe Joel John Jonathan Jordan Joseph Joyce Juan Judith Julia Julian Julie June Justin Karen Karl "
    "Kate Keith Kelly Ken Kevin Kim Kirk Kurt Kyle Lance Larry Laura Lauren Lawrence Leah Lee Leo Leon Leonard Leroy "
    "Leslie Lewis Lillian Linda Lisa Lloyd Logan Lois Lola Lorenzo Louis Louise Lucas Lucy Luis Luke Luther Lydia "
    "Lynn Mabel Mack Madison Marcus Margaret Maria Marie Marilyn Marion Mark Marsha Martha Martin Marvin Mary Mason "
    "Matthew Maureen Maurice Max Megan Melissa Melvin Michael Michelle Mike Mildred Miles Milton Miranda Mitchell "
    "Molly Monica Morgan Morris Myra Nancy Naomi Natalie Nathan Neil Nicholas Nicole Nina Noah Noel Nora Norman Olga "
    "Oliver Olivia Omar Oscar Otto Owen Pamela Patricia Patrick Paul Paula Pearl Pedro Peggy Percy Perry Peter Philip "
    "Phyllis Priscilla Quentin Rachel Ralph Ramon Randy Raymond Rebecca Regina Rex Rhonda Richard Rick Rita Robert "
    "Robin Roger Roland Ron Rosa Rose Ross Roy Ruby Rufus Russell Ruth Ryan Sally Sam Samantha Samuel Sandra Sara "
    "Scott Sean Seth Shane Shannon Sharon Sheila Shirley Sidney Simon Sofia Sonia Spencer Stanley Stella Stephen "
    "Steve Stuart Sue Susan Sylvia Tamara Tara Ted Teresa Terry Thelma Theodore Theresa Thomas Tiffany Tim Tina Todd "
    "Tom Tony Tracy Travis Trevor Troy Tyler Ursula Valerie Vanessa Vera Vernon Veronica Victor Victoria Vincent "
    "Viola Violet Virginia Vivian Wallace Walter Wanda Warren Wayne Wendy Wesley Wilbur William Willie Winston "
    "Yolanda Yvonne Zoe";

constexpr const char words[] =
    "river stone candle garden window bridge mountain silver forest hammer mirror basket castle desert engine feather "
    "guitar harbor island jacket kettle ladder magnet needle ocean pencil rabbit saddle table umbrella valley wagon "
    "anchor bottle carpet dragon eagle finger ginger helmet iron jungle kitchen lemon marble nickel orange pepper "
    "quartz rocket spider tiger tunnel velvet winter yellow barrel copper diamond falcon glass honey ivory lantern";

}  // namespace eval
